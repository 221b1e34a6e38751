"""The configurations of a space as a tree: which are possible, and of a finite one how many and which is which.

Values that no condition tells apart are one branch, so a tree is small however wide the ranges are. It is laid out
level by level, a parameter each: what stands at a place is known by the branches taken of those parameters alone that
later ones still look at.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.space.axes import Axis, Part, parts

if TYPE_CHECKING:
    from pydantic import JsonValue

    from search.space.conditions import Condition
    from search.space.parameters import Parameter
    from search.space.space import Params, Space

ABSENT = -1
MAX_BRANCHES = 100_000

Place = tuple[int, ...]
"""For each parameter that is still looked at: which of its parts was taken, or that it does not exist."""


class TooEntangled(ValueError):
    """So many parameters depend on each other that the branches cannot be laid out."""


@dataclass(frozen=True)
class Branch:
    taken: int
    to: Place
    count: int


class Configurations:
    """`axes` has the values of each parameter. Number `i` is the same configuration for the same space and axes."""

    def __init__(self, space: "Space", axes: Mapping[str, Axis]) -> None:
        self._space, self.axes, self._order = space, axes, space.order
        self._conditions = _Conditions(space)
        self.parts = {name: parts(axes[name], self._conditions.on(name)) for name in self._order}
        self._useful: set[int] = set()
        self._levels = self._laid_out()
        self._totals = self._counted()
        self.size = self._totals[0][()]

    def __getitem__(self, index: int) -> "Params":
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen: dict[str, JsonValue] = {}
        place: Place = ()
        for level, name in enumerate(self._order):
            for branch in self._levels[level][place]:
                each = self._totals[level + 1][branch.to]
                if index < branch.count * each:
                    number, index = divmod(index, each)
                    if branch.taken != ABSENT:
                        chosen[name] = self.axes[name].value(self.parts[name][branch.taken].at(number))
                    place = branch.to
                    break
                index -= branch.count * each
        return {name: chosen[name] for name in self._space.root if name in chosen}

    def nearby(self, wanted: "Params", chance: Callable[[], float]) -> "Params":
        """A possible configuration that keeps as much of `wanted` as can be, from the first parameter on.

        The rest is drawn; `chance` gives numbers from 0 to below 1. There must be a configuration.
        """
        chosen: dict[str, JsonValue] = {}
        place: Place = ()
        for level, name in enumerate(self._order):
            possible = [one for one in self._levels[level][place] if self._totals[level + 1][one.to]]
            branch = next((one for one in possible if self._is_on(name, one, wanted)), None)
            if branch is None:
                branch = possible[int(chance() * len(possible))]
                chosen[name] = self._drawn(name, self.parts[name][branch.taken], chance)
            elif branch.taken != ABSENT:
                chosen[name] = wanted[name]
            place = branch.to
        return {name: chosen[name] for name in self._space.root if name in chosen}

    def possible(self) -> dict[str, set[int]]:
        """Which parts of each parameter some configuration has."""
        found: dict[str, set[int]] = {name: set() for name in self._order}
        reached: set[Place] = {()}
        for level, name in enumerate(self._order):
            branches = [branch for place in reached for branch in self._levels[level][place]]
            alive = [branch for branch in branches if self._totals[level + 1][branch.to]]
            found[name] = {branch.taken for branch in alive} - {ABSENT}
            reached = {branch.to for branch in alive}
        return found

    def useless(self) -> list[int]:
        """The entries of `forbid` that no configuration meets anyway."""
        return [index for index in range(len(self._space.forbidden)) if index not in self._useful]

    def _laid_out(self) -> list[dict[Place, list[Branch]]]:
        levels: list[dict[Place, list[Branch]]] = []
        places: Iterable[Place] = ((),)
        room = MAX_BRANCHES
        for level in range(len(self._order)):
            branches_at = {}
            for place in places:
                branches_at[place] = list(self._branches(level, place))
                room -= len(branches_at[place])
                if room < 0:
                    raise TooEntangled("too many parameters depend on each other to tell what is possible")
            levels.append(branches_at)
            # In the order in which they were come to, the same in every process.
            places = dict.fromkeys(branch.to for branches in branches_at.values() for branch in branches)
        return levels

    def _branches(self, level: int, place: Place) -> Iterator[Branch]:
        name, looked_at = self._order[level], self._conditions.looked_at
        state = dict(zip(looked_at[level], place, strict=True))
        exists = all(self._meets(state, parent, key) for parent, key in self._conditions.when[name])
        for taken in range(len(self.parts[name])) if exists else (ABSENT,):
            state[name] = taken
            if not self._is_forbidden(name, state):
                to = tuple(state[one] for one in looked_at[level + 1])
                yield Branch(taken, to, 1 if taken == ABSENT else self.parts[name][taken].count)

    def _is_forbidden(self, name: str, state: Mapping[str, int]) -> bool:
        hit = [
            entry
            for entry, conditions in self._conditions.decided_at(name)
            if all(self._meets(state, one, key) for one, key in conditions)
        ]
        self._useful.update(hit)
        return bool(hit)

    def _meets(self, state: Mapping[str, int], name: str, key: int) -> bool:
        return state[name] != ABSENT and key in self.parts[name][state[name]].meets

    def _counted(self) -> list[dict[Place, int]]:
        totals: list[dict[Place, int]] = [{(): 1}]
        for branches_at in reversed(self._levels):
            after = totals[0]
            counted = {place: sum(one.count * after[one.to] for one in all_) for place, all_ in branches_at.items()}
            totals.insert(0, counted)
        return totals

    def _is_on(self, name: str, branch: Branch, wanted: "Params") -> bool:
        if branch.taken == ABSENT:
            return True
        place = self.axes[name].position(wanted[name]) if name in wanted else None
        return place is not None and place in self.parts[name][branch.taken]

    def _drawn(self, name: str, part: Part, chance: Callable[[], float]) -> "JsonValue":
        parameter: Parameter = self._space.root[name]
        segment = part.segments[int(chance() * len(part.segments))]
        return self.axes[name].between(segment, chance(), log=getattr(parameter, "log", False))


class _Conditions:
    """All conditions of a space, numbered, and when each is decided."""

    def __init__(self, space: "Space") -> None:
        order = {name: place for place, name in enumerate(space.order)}
        self._on: dict[str, dict[int, Condition]] = {name: {} for name in order}
        self.when = {name: self._numbered(space.root[name].when) for name in order}
        self._forbidden = [self._numbered(entry) for entry in space.forbidden]
        # The names that are looked at when the last of them is decided, with that one's place.
        needed = [(order[name], {parent for parent, _ in when}) for name, when in self.when.items()]
        self._last = [max(order[name] for name, _ in entry) for entry in self._forbidden]
        needed += [(last, {name for name, _ in entry}) for last, entry in zip(self._last, self._forbidden, strict=True)]
        self.looked_at = [
            sorted({name for last, names in needed if last >= level for name in names if order[name] < level})
            for level in range(len(order) + 1)
        ]
        self._order = order

    def on(self, name: str) -> Mapping[int, "Condition"]:
        return self._on[name]

    def decided_at(self, name: str) -> Iterator[tuple[int, list[tuple[str, int]]]]:
        for index, entry in enumerate(self._forbidden):
            if self._last[index] == self._order[name]:
                yield index, entry

    def _numbered(self, conditions: Mapping[str, "Condition"]) -> list[tuple[str, int]]:
        numbered = []
        for name, condition in conditions.items():
            key = len(self._on[name])
            self._on[name][key] = condition
            numbered.append((name, key))
        return numbered
