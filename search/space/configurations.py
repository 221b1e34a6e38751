"""The possible configurations of a space, as a tree: which they are, and how many a finite space has.

Values that no condition distinguishes share a branch, so the tree is small however wide the ranges are. It has a level
for each parameter. A node is identified by the branches taken for those parameters that later conditions look at.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from search.space.axes import Axis, Part, TooEntangled, parts
from search.space.conditions import Condition
from search.space.parameters import Parameter, Params

ABSENT = -1
MAX_BRANCHES = 100_000
MAX_CHECKS = 3_000_000
"""Of entries of `forbid` at branches: with both limits, building the tree takes a few seconds at most."""

Entry = list[tuple[str, int]]
"""Of `forbid`: the names and keys of its conditions."""

Node = tuple[int, ...]
"""For each parameter that later conditions look at: the index of the part that was taken, or ABSENT."""


@dataclass(frozen=True)
class Branch:
    taken: int
    to: Node
    count: int


class Configurations:
    """A sequence: index `i` is the same configuration in every process.

    `parameters` and `order` are those of the space, in which parents come before children; `forbidden` are the entries
    of `forbid`; `axes` has the values of each parameter. Raises TooEntangled.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        order: Sequence[str],
        forbidden: Sequence[Mapping[str, Condition]],
        axes: Mapping[str, Axis],
    ) -> None:
        self._parameters, self._order, self._forbidden, self.axes = parameters, order, forbidden, axes
        self._conditions = _Conditions(parameters, order, forbidden)
        self.parts = {name: parts(axes[name], self._conditions.on(name)) for name in self._order}
        self._decided = {name: self._decided_at(name) for name in self._order}
        self._useful: set[int] = set()
        self._levels = self._built_levels()
        self._totals = self._subtree_sizes()
        self.size = self._totals[0][()]

    def __getitem__(self, index: int) -> Params:
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen: dict[str, JsonValue] = {}
        node: Node = ()
        for level, name in enumerate(self._order):
            for branch in self._levels[level][node]:
                each = self._totals[level + 1][branch.to]
                if index < branch.count * each:
                    number, index = divmod(index, each)
                    if branch.taken != ABSENT:
                        chosen[name] = self.axes[name].value(self.parts[name][branch.taken].at(number))
                    node = branch.to
                    break
                index -= branch.count * each
        return {name: chosen[name] for name in self._parameters if name in chosen}

    def nearby(self, wanted: Params, random: Callable[[], float]) -> Params:
        """A possible configuration that keeps as many values of `wanted` as possible, from the first parameter on.

        The others are drawn; `random` returns numbers in [0, 1). At least one configuration must be possible.
        """
        chosen: dict[str, JsonValue] = {}
        node: Node = ()
        for level, name in enumerate(self._order):
            possible = [one for one in self._levels[level][node] if self._totals[level + 1][one.to]]
            branch = next((one for one in possible if self._is_on(name, one, wanted)), None)
            if branch is None:
                branch = possible[int(random() * len(possible))]
                chosen[name] = self._drawn(name, self.parts[name][branch.taken], random)
            elif branch.taken != ABSENT:
                chosen[name] = wanted[name]
            node = branch.to
        return {name: chosen[name] for name in self._parameters if name in chosen}

    def with_most_of(self, wanted: Params, random: Callable[[], float]) -> Params:
        """A possible configuration with the values of `wanted`, which are from the space, from the first parameter on.

        Others are drawn from where most of the wanted values exist. At least one configuration must be possible.
        """
        chosen: dict[str, JsonValue] = {}
        node: Node = ()
        on = {name: self._part_on(name, wanted) for name in self._order}
        kept = self._most_kept(on)
        for level, name in enumerate(self._order):
            best = self._best(level, node, on, kept[level + 1])
            branch = best[int(random() * len(best))]
            if branch.taken == on[name]:
                chosen[name] = wanted[name]
            elif branch.taken != ABSENT:
                chosen[name] = self._drawn(name, self.parts[name][branch.taken], random)
            node = branch.to
        return {name: chosen[name] for name in self._parameters if name in chosen}

    def possible(self) -> dict[str, set[int]]:
        """For each parameter, the indexes of the parts that occur in a possible configuration."""
        found: dict[str, set[int]] = {}
        reached: set[Node] = {()}
        for level, name in enumerate(self._order):
            branches = [branch for node in reached for branch in self._levels[level][node]]
            alive = [branch for branch in branches if self._totals[level + 1][branch.to]]
            found[name] = {branch.taken for branch in alive} - {ABSENT}
            reached = {branch.to for branch in alive}
        return found

    def useless(self) -> list[int]:
        """The indexes of the entries of `forbid` that no configuration meets."""
        return [index for index in range(len(self._forbidden)) if index not in self._useful]

    def _built_levels(self) -> list[dict[Node, list[Branch]]]:
        levels: list[dict[Node, list[Branch]]] = []
        nodes: Iterable[Node] = ((),)
        room, checks = MAX_BRANCHES, MAX_CHECKS
        for level, name in enumerate(self._order):
            branches_at = {}
            checks_at_node = sum(map(len, self._decided[name]))
            for node in nodes:
                checks -= checks_at_node
                if checks < 0:
                    raise TooEntangled
                branches_at[node] = list(self._branches(level, node))
                room -= len(branches_at[node])
                if room < 0:
                    raise TooEntangled
            levels.append(branches_at)
            # A dict keeps the order, which is the same in every process.
            nodes = dict.fromkeys(branch.to for branches in branches_at.values() for branch in branches)
        return levels

    def _branches(self, level: int, node: Node) -> Iterator[Branch]:
        name, looked_at = self._order[level], self._conditions.looked_at
        state = dict(zip(looked_at[level], node, strict=True))
        exists = all(self._meets(state, parent, key) for parent, key in self._conditions.when[name])
        for taken in range(len(self.parts[name])) if exists else (ABSENT,):
            state[name] = taken
            if taken == ABSENT or not self._is_forbidden(self._decided[name][taken], state):
                to = tuple(state[one] for one in looked_at[level + 1])
                yield Branch(taken, to, 1 if taken == ABSENT else self.parts[name][taken].count)

    def _decided_at(self, name: str) -> list[list[tuple[int, Entry]]]:
        """For each part, the entries whose last condition it meets, with their indexes."""
        ending = self._conditions.ending_at[name]
        return [[ending[key] for key in sorted(part.meets & ending.keys())] for part in self.parts[name]]

    def _is_forbidden(self, entries: Iterable[tuple[int, Entry]], state: Mapping[str, int]) -> bool:
        hit = [index for index, entry in entries if all(self._meets(state, one, key) for one, key in entry)]
        self._useful.update(hit)
        return bool(hit)

    def _meets(self, state: Mapping[str, int], name: str, key: int) -> bool:
        return state[name] != ABSENT and key in self.parts[name][state[name]].meets

    def _subtree_sizes(self) -> list[dict[Node, int]]:
        totals: list[dict[Node, int]] = [{(): 1}]
        for branches_at in reversed(self._levels):
            after = totals[0]
            counted = {node: sum(one.count * after[one.to] for one in all_) for node, all_ in branches_at.items()}
            totals.insert(0, counted)
        return totals

    def _part_on(self, name: str, wanted: Params) -> int | None:
        """The index of the part with the wanted value."""
        position = self.axes[name].position(wanted[name]) if name in wanted else None
        if position is None:
            return None
        return next(index for index, part in enumerate(self.parts[name]) if position in part)

    def _most_kept(self, on: Mapping[str, int | None]) -> list[dict[Node, int]]:
        """For each level and node, how many wanted values can follow."""
        kept: list[dict[Node, int]] = [{(): 0}]
        for level, name in reversed(list(enumerate(self._order))):
            after = kept[0]
            best = {node: self._best(level, node, on, after) for node in self._levels[level]}
            counts = {node: after[all_[0].to] + (all_[0].taken == on[name]) for node, all_ in best.items() if all_}
            kept.insert(0, dict.fromkeys(self._levels[level], 0) | counts)
        return kept

    def _best(
        self, level: int, node: Node, on: Mapping[str, int | None], after: Mapping[Node, int]
    ) -> Sequence[Branch]:
        """The branch with the wanted value, or else those that most wanted values can follow."""
        possible = [one for one in self._levels[level][node] if self._totals[level + 1][one.to]]
        wanted = [one for one in possible if one.taken == on[self._order[level]]]
        most = max((after[one.to] for one in possible), default=0)
        return wanted or [one for one in possible if after[one.to] == most]

    def _is_on(self, name: str, branch: Branch, wanted: Params) -> bool:
        if branch.taken == ABSENT:
            return True
        position = self.axes[name].position(wanted[name]) if name in wanted else None
        return position is not None and position in self.parts[name][branch.taken]

    def _drawn(self, name: str, part: Part, random: Callable[[], float]) -> JsonValue:
        parameter = self._parameters[name]
        segment = part.segments[int(random() * len(part.segments))]
        return self.axes[name].between(segment, random(), log=getattr(parameter, "log", False))


class _Conditions:
    """All conditions of a space, each with a key.

    `ending_at` has, for each parameter, the entries of `forbid` of which it is the last: the index and the conditions
    of each, by the key of its condition on this parameter.
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], order: Sequence[str], forbidden: Sequence[Mapping[str, Condition]]
    ) -> None:
        level_of = {name: level for level, name in enumerate(order)}
        self._on: dict[str, dict[int, Condition]] = {name: {} for name in order}
        self.when = {name: self._with_keys(parameters[name].when) for name in order}
        # The level at which each set of conditions is decided, with the names that it looks at.
        needed = [(level_of[name], {parent for parent, _ in when}) for name, when in self.when.items()]
        self.ending_at: dict[str, dict[int, tuple[int, Entry]]] = {name: {} for name in order}
        for index, entry in enumerate(map(self._with_keys, forbidden)):
            last, key = max(entry, key=lambda one: level_of[one[0]])
            self.ending_at[last][key] = index, entry
            needed.append((level_of[last], {name for name, _ in entry}))
        self.looked_at = [
            sorted({name for last, names in needed if last >= level for name in names if level_of[name] < level})
            for level in range(len(order) + 1)
        ]

    def on(self, name: str) -> Mapping[int, Condition]:
        return self._on[name]

    def _with_keys(self, conditions: Mapping[str, Condition]) -> Entry:
        with_keys = []
        for name, condition in conditions.items():
            key = len(self._on[name])
            self._on[name][key] = condition
            with_keys.append((name, key))
        return with_keys
