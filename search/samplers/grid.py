"""Grid search: every configuration of a finite space once, in an order derived from the seed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from search.mistakes import Mistake
from search.problem import Observation, Problem, SpaceExhausted
from search.samplers.sampler import Sampler, Source
from search.space.axes import Values
from search.space.parameters import coded, nearest_position
from search.space.scalars import Scalar, repetitions
from search.space.space import Params, Space

_BLOCK_BYTES = 16
_MAX_DECIMAL_BITS = 10_000
_Key = frozenset[tuple[str, tuple[int | None, Any]]]


class Grid(Sampler):
    """`search_space`, as in Optuna: the values to try of some parameters. All values of the others are tried."""

    is_exhaustive: ClassVar[bool] = True
    takes_priors: ClassVar[bool] = False

    search_space: dict[str, tuple[Scalar, ...]] = Field(default_factory=dict)

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        space = problem.space
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

    def proposer(self, problem: Problem, seed: int) -> "GridProposer":
        return GridProposer(problem.space, {**all_values(problem.space), **self.search_space}, seed)


class GridProposer:
    """Proposes the first configuration, in the seed's order, that no trial has, whatever its status.

    `repeat_running`: when every configuration has a trial, one whose trials are all still running is proposed again.
    `anew`: trials of earlier experiments, whose numbers are below 0, do not count.
    """

    def __init__(
        self,
        space: Space,
        values: Mapping[str, Sequence[Scalar]],
        seed: int,
        *,
        repeat_running: bool = False,
        anew: bool = False,
    ) -> None:
        self._space, self._seed, self._repeat_running, self._anew = space, seed, repeat_running, anew
        self._values = values
        self._configurations = space.configurations_on({name: Values(one) for name, one in values.items()})
        self._tried: dict[int, tuple[_Key, bool]] = {}
        self._ordered: list[tuple[_Key, Params]] = []  # as far as it was needed

    def learn(self, observation: Observation) -> None:
        if observation.number >= 0 or not self._anew:
            self._tried[observation.number] = (self._key(observation.params), observation.status == "running")

    def propose(self, number: int) -> Params:
        others = [tried for known, tried in self._tried.items() if known != number]
        params = self._first_except({key for key, _ in others})
        if params is None and self._repeat_running:
            params = self._first_except({key for key, running in others if not running})
        if params is None:
            raise SpaceExhausted(f"all configurations of the grid ({self._configurations.size}) have been tried")
        return params

    def source(self, _: int) -> Source:
        return "grid"

    def _first_except(self, tried: Collection[_Key]) -> Params | None:
        return next((dict(params) for key, params in self._in_order() if key not in tried), None)

    def _in_order(self) -> Iterator[tuple[_Key, Params]]:
        yield from self._ordered
        size = self._configurations.size
        for index in range(len(self._ordered), size):
            params = self._configurations[_shuffled(index, size, self._seed)]
            self._ordered.append((self._key(params), params))
            yield self._ordered[-1]

    def _key(self, params: Params) -> _Key:
        return frozenset((name, self._coordinate(name, value)) for name, value in params.items())

    def _coordinate(self, name: str, value: JsonValue) -> tuple[int | None, Any]:
        """The value's index on the grid, so that 0.30000000000000004 is 0.3; or else the value as a number."""
        index = nearest_position(self._values[name], value)
        return index, coded(self._space.root[name], value) if index is None else None


def all_values(space: Space) -> dict[str, Sequence[Scalar]]:
    """All values of each parameter; empty for a continuous one."""
    return {name: parameter.values() or () for name, parameter in space.root.items()}


def _mistakes_in(space: Space, name: str, values: Sequence[Scalar]) -> list[Mistake]:
    if name not in space.root:
        return [Mistake((), space.unknown_parameter)]
    if not values:
        return [Mistake((), "must have at least one value")]
    repeated = repetitions(values)
    return [
        Mistake((index,), message)
        for index, value in enumerate(values)
        if (message := space.root[name].mistake_in(value) or repeated.get(index))
    ]


def _shuffled(index: int, size: int, seed: int) -> int:
    """The image of `index` in a permutation of `range(size)`: a Feistel network, repeated until it is in range."""
    half = max(1, (size.bit_length() + 1) // 2)
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for turn in range(4):
            left, right = right, left ^ _random_bits(f"{seed}/{turn}/{_text(right)}", half)
        index = (left << half) | right
        if index < size:
            return index


def _text(number: int) -> str:
    """Python refuses to write numbers of more than 4,300 digits in decimal."""
    return str(number) if number.bit_length() < _MAX_DECIMAL_BITS else f"{number:x}"


def _random_bits(key: str, count: int) -> int:
    """An integer of `count` bits, which follows from the key."""
    blocks = range(-(-count // (8 * _BLOCK_BYTES)))
    keys = (f"{key}/{block}" if block else key for block in blocks)
    drawn = b"".join(blake2b(one.encode(), digest_size=_BLOCK_BYTES).digest() for one in keys)
    return int.from_bytes(drawn) & ((1 << count) - 1)
