"""The values of a parameter by position, and the parts into which conditions divide them."""

import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from search.space.conditions import ROUNDING, Range, differ_by_rounding
from search.space.log_interpolation import interpolate_log
from search.space.parameters import Steps, position
from search.space.scalars import Scalar, identity, positions

Segment = tuple[int, int]
"""A range of positions: the first and the last, both included."""

MAX_MET = 3_000_000
"""Conditions that the parts of an axis meet, counted for each part."""


class TooEntangled(ValueError):
    """Too many parameters depend on each other, or too many conditions overlap, to compute the configurations."""

    def __str__(self) -> str:
        return "too many parameters depend on each other to compute the configurations"


class Axis(Protocol):
    @property
    def count(self) -> int: ...

    def value(self, position: int) -> Scalar: ...

    def position(self, value: Any) -> int | None: ...

    def where(self, condition: Range | tuple[Scalar, ...]) -> Sequence[Segment]:
        """The positions whose values meet the condition."""

    def between(self, segment: Segment, share: float, *, log: bool) -> Scalar:
        """The value at this share of the way from the segment's first position to its last; 0 <= share < 1."""


@dataclass(frozen=True)
class Values:
    """A finite sequence of values."""

    values: Sequence[Scalar]

    @property
    def count(self) -> int:
        return len(self.values)

    def value(self, position: int) -> Scalar:
        return self.values[position]

    def position(self, value: Any) -> int | None:
        return position(self.values, value)

    def where(self, condition: Range | tuple[Scalar, ...]) -> Sequence[Segment]:
        if not isinstance(condition, Range):
            found = self._positions_of(condition)
        elif isinstance(self.values, range | Steps):
            return _sorted_between(self.values, condition)
        else:
            found = {index for index, value in enumerate(self.values) if value in condition}
        return [(index, index) for index in sorted(found)]

    def _positions_of(self, wanted: Iterable[Scalar]) -> set[int]:
        """The positions of the wanted values that are among these."""
        if isinstance(self.values, range | Steps):
            return {index for value in wanted if (index := self.position(value)) is not None}
        known, wanted = positions(self.values), list(wanted)
        exact = {known[one] for one in map(identity, wanted) if one in known}
        return exact | _close_positions(self.values, [one for one in wanted if isinstance(one, float)])

    def between(self, segment: Segment, share: float, *, log: bool) -> Scalar:
        first, last = segment
        if log and isinstance(self.values, range):
            return _whole_between(self.values[first], self.values[last], share)
        return self.values[first + min(int(share * (last - first + 1)), last - first)]


@dataclass(frozen=True)
class Floats:
    """All floats of a range, in their order."""

    low: float
    high: float

    @property
    def count(self) -> int:
        return _order(self.high) - _order(self.low) + 1

    def value(self, position: int) -> float:
        return _ordered(position + _order(self.low))

    def position(self, value: Any) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return None
        return _order(float(value)) - _order(self.low)

    def where(self, condition: Range | tuple[Scalar, ...]) -> Sequence[Segment]:
        if not isinstance(condition, Range):
            found = (self.position(value) for value in condition)
            return [(index, index) for index in sorted({index for index in found if index is not None})]
        low = self.low if condition.min is None else max(self.low, condition.min)
        high = self.high if condition.max is None else min(self.high, condition.max)
        return [(_order(low) - _order(self.low), _order(high) - _order(self.low))] if low <= high else []

    def between(self, segment: Segment, share: float, *, log: bool) -> float:
        low, high = self.value(segment[0]), self.value(segment[1])
        drawn = interpolate_log(low, high, share) if log else low + share * (high - low)
        return min(max(drawn, low), high)


@dataclass(frozen=True)
class Part:
    """Positions of one axis that no condition distinguishes; `meets` has the keys of the conditions that they meet."""

    segments: tuple[Segment, ...]
    meets: frozenset[int]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.segments)

    def at(self, index: int) -> int:
        """The position that has this index within the part."""
        for first, last in self.segments:
            if index <= last - first:
                return first + index
            index -= last - first + 1
        raise IndexError(index)

    def __contains__(self, position: int) -> bool:
        return any(first <= position <= last for first, last in self.segments)


def parts(axis: Axis, conditions: Mapping[int, Range | tuple[Scalar, ...]]) -> list[Part]:
    """The parts into which the conditions divide the axis. Raises TooEntangled."""
    begin, end = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for key, condition in conditions.items():
        for first, last in axis.where(condition):
            begin[first].add(key)
            end[last + 1].add(key)
    kinds: dict[frozenset[int], list[Segment]] = {}
    met: frozenset[int] = frozenset()
    room = MAX_MET
    for first, after in pairwise(sorted({0, axis.count, *begin, *end})):
        met = met - end[first] | begin[first]
        room -= len(met)
        if room < 0:
            raise TooEntangled
        kinds.setdefault(met, []).append((first, after - 1))
    return [Part(tuple(segments), kind) for kind, segments in kinds.items()]


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Joins the positions to as few segments as possible, in order."""
    found: list[Segment] = []
    for first, last in sorted(segments):
        if found and found[-1][1] + 1 == first:
            first = found.pop()[0]  # noqa: PLW2901
        found.append((first, last))
    return found


def _close_positions(values: Sequence[Scalar], wanted: Sequence[float]) -> set[int]:
    """The positions of values that differ from a wanted one only by a float's rounding, as `meets` compares them."""
    if not wanted:
        return set()
    known = sorted((value, index) for index, value in enumerate(values) if isinstance(value, float))
    found = set[int]()
    for one in wanted:
        margin = 2 * ROUNDING * abs(one)
        close = known[bisect_left(known, (one - margin, 0)) : bisect_right(known, (one + margin, len(values)))]
        found |= {index for value, index in close if differ_by_rounding(value, one)}
    return found


def _whole_between(low: int, high: int, share: float) -> int:
    """On a logarithmic scale, where each number from 1 on has the room from half a step below it to half above."""
    return min(max(round(interpolate_log(low - 0.5, high + 0.5, share)), low), high)


def _sorted_between(values: Sequence[Any], wanted: Range) -> Sequence[Segment]:
    if isinstance(values, Steps):
        wanted = values.with_bounds_on_steps(wanted)
    first = 0 if wanted.min is None else bisect_left(values, wanted.min)
    last = len(values) - 1 if wanted.max is None else bisect_right(values, wanted.max) - 1
    return [(first, last)] if first <= last else []


def _order(value: float) -> int:
    """Maps floats to integers in the same order; neighbouring floats get neighbouring integers."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _ordered(order: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", abs(order)))[0]
    return value if order >= 0 else -value
