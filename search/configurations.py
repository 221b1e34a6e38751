"""The configurations of a finite space, counted and numbered without making them all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.parameters import position
from search.scalars import Scalar

if TYPE_CHECKING:
    from pydantic import JsonValue

    from search.space import Params, Space

ANOTHER = -1  # a value that no condition names; also: the parameter does not exist
State = dict[str, int]


@dataclass(frozen=True)
class _Branch:
    """Values of one parameter that make no difference to the rest: how many, and the state they lead to."""

    count: int
    state: State
    name: str | None = None
    skipped: tuple[int, ...] = ()
    only: int | None = None

    def at(self, index: int) -> int:
        """The position on the axis of this branch's value number `index`."""
        if self.only is not None:
            return self.only
        for skip in self.skipped:
            index += skip <= index
        return index


class Configurations:
    """`axes` has the values of each parameter. Number `i` is the same configuration for the same space and axes."""

    def __init__(self, space: "Space", axes: Mapping[str, Sequence[Scalar]]) -> None:
        self._space, self._axes, self._order = space, axes, space.order
        self._wanted = {
            name: {parent: _positions(axes[parent], values) for parent, values in parameter.when.items()}
            for name, parameter in space.root.items()
        }
        self._named = {name: self._named_positions(name) for name in self._order}
        # What the parameters from each place on still look at: the rest of the state does not change their count.
        self._looked_at = [
            sorted({parent for later in self._order[place:] for parent in self._wanted[later]})
            for place in range(len(self._order) + 1)
        ]
        self._totals: dict[tuple[int, ...], int] = {}
        self.size = self._total(0, {})

    def __getitem__(self, index: int) -> "Params":
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen: dict[str, JsonValue] = {}
        state: State = {}
        for place in range(len(self._order)):
            for branch in self._branches(place, state):
                each = self._total(place + 1, branch.state)
                if index < branch.count * each:
                    number, index = divmod(index, each)
                    if branch.name is not None:
                        chosen[branch.name] = self._axes[branch.name][branch.at(number)]
                    state = branch.state
                    break
                index -= branch.count * each
        return {name: chosen[name] for name in self._space.root if name in chosen}

    def _named_positions(self, name: str) -> tuple[int, ...]:
        return tuple(sorted({place for wanted in self._wanted.values() for place in wanted.get(name, ())}))

    def _total(self, place: int, state: State) -> int:
        if place == len(self._order):
            return 1
        key = (place, *(state.get(name, ANOTHER) for name in self._looked_at[place]))
        if key not in self._totals:
            self._totals[key] = sum(
                branch.count * self._total(place + 1, branch.state) for branch in self._branches(place, state)
            )
        return self._totals[key]

    def _branches(self, place: int, state: State) -> Iterator[_Branch]:
        name = self._order[place]
        if any(state[parent] not in wanted for parent, wanted in self._wanted[name].items()):
            yield _Branch(1, {**state, name: ANOTHER})
            return
        named = self._named[name]
        for only in named:
            yield _Branch(1, {**state, name: only}, name, only=only)
        if rest := len(self._axes[name]) - len(named):
            yield _Branch(rest, {**state, name: ANOTHER}, name, skipped=named)


def _positions(axis: Sequence[Scalar], values: Sequence[Scalar]) -> frozenset[int]:
    return frozenset(place for value in values if (place := position(axis, value)) is not None)
