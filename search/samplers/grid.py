"""Every configuration of a finite space once, in an order drawn from the seed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from pydantic import Field

from search.mistakes import Mistake, listed
from search.problem import SpaceExhausted
from search.samplers.base import Sampler
from search.space.axes import Values
from search.space.configurations import Configurations
from search.space.parameters import coded
from search.space.scalars import Scalar, repetitions
from search.space.space import Params, Space

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting


_Key = frozenset[tuple[str, float]]


class Grid(Sampler):
    """`search_space`: the values to try of some parameters, Optuna's name for it. The others are tried whole."""

    search_space: dict[str, tuple[Scalar, ...]] = Field(default_factory=dict)

    def unsuited(self, setting: "Setting") -> list[Mistake]:
        space = setting.space
        unlisted = [
            Mistake(("space", name), f"grid needs a step here, or values in search.options.search_space.{name}")
            for name, parameter in space.root.items()
            if parameter.values() is None and name not in self.search_space
        ]
        return unlisted + [
            mistake.under("search", "options", "search_space", name)
            for name, values in self.search_space.items()
            for mistake in _mistakes_in(space, name, values)
        ]

    def axes(self, space: Space) -> dict[str, Sequence[Scalar]]:
        """The values to try of each parameter; `unsuited` has said where there are none."""
        return {**whole(space), **self.search_space}

    def proposer(self, problem: "Problem") -> "GridProposer":
        return GridProposer(problem, self.axes(problem.space))


class GridProposer:
    """Proposes the first configuration, in the seed's order, that no trial of any status has.

    `again`: when all have been, one that has only been in trials that are still running.
    """

    def __init__(self, problem: "Problem", axes: Mapping[str, Sequence[Scalar]], *, again: bool = False) -> None:
        self._problem, self._again = problem, again
        self._configurations = Configurations(problem.space, {name: Values(values) for name, values in axes.items()})
        self._tried: dict[int, tuple[_Key, bool]] = {}
        self._ordered: list[tuple[_Key, Params]] = []  # as far as it was needed

    def learn(self, observation: "Observation") -> None:
        self._tried[observation.number] = (self._key(observation.params), observation.status == "running")

    def propose(self, number: int) -> Params:
        others = [tried for known, tried in self._tried.items() if known != number]
        params = self._first_besides({key for key, _ in others})
        if params is None and self._again:
            params = self._first_besides({key for key, running in others if not running})
        if params is None:
            raise SpaceExhausted(f"all {self._configurations.size} configurations of the grid have been tried")
        return params

    def _first_besides(self, tried: Collection[_Key]) -> Params | None:
        return next((dict(params) for key, params in self._in_order() if key not in tried), None)

    def _in_order(self) -> Iterator[tuple[_Key, Params]]:
        yield from self._ordered
        size = self._configurations.size
        for place in range(len(self._ordered), size):
            params = self._configurations[_shuffled(place, size, self._problem.seed)]
            self._ordered.append((self._key(params), params))
            yield self._ordered[-1]

    def _key(self, params: Params) -> _Key:
        return frozenset((name, coded(self._problem.space.root[name], value)) for name, value in params.items())


def whole(space: Space) -> dict[str, Sequence[Scalar]]:
    """All values of each parameter; none where there is no end of them."""
    return {name: parameter.values() or () for name, parameter in space.root.items()}


def _mistakes_in(space: Space, name: str, values: Sequence[Scalar]) -> list[Mistake]:
    if name not in space.root:
        return [Mistake((), f"unknown parameter; the space has {listed(space.root)}")]
    if not values:
        return [Mistake((), "must have at least one value")]
    repeated = repetitions(values)
    return [
        Mistake((index,), message)
        for index, value in enumerate(values)
        if (message := space.root[name].mistake_in(value) or repeated.get(index))
    ]


def _shuffled(place: int, size: int, seed: int) -> int:
    """Where `place` goes in a permutation of `range(size)`: a Feistel network, walked until it is inside."""
    half = max(1, (size.bit_length() + 1) // 2)
    while True:
        left, right = place >> half, place & ((1 << half) - 1)
        for turn in range(4):
            digest = blake2b(f"{seed}/{turn}/{right}".encode(), digest_size=16).digest()
            left, right = right, left ^ (int.from_bytes(digest) & ((1 << half) - 1))
        place = (left << half) | right
        if place < size:
            return place
