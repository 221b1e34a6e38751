"""The other trials that a rule compares a trial with, held in memory as a sorted list."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from search.problem import Direction

Ranking = list[tuple[float, int]]
"""Values with the numbers of their trials, ascending."""


@dataclass(frozen=True)
class Standing:
    """The number of trials in a pool, and of those with a better value than a given one."""

    count: int
    better_count: int


@dataclass(frozen=True)
class Peer:
    """Another trial's value at a milestone."""

    number: int
    value: float


@dataclass(frozen=True)
class Peers:
    """The other trials of a pool at a milestone. A rule queries only what it needs, because there may be thousands.

    `own` is the index of the trial that is compared with them, if it is in the ranking.
    """

    ranking: Ranking
    own: int | None

    def count(self) -> int:
        return len(self.ranking) - (self.own is not None)

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
        """If there is a number, trials that tie and have a lower number count as better."""
        count = self.count()
        if number is not None:
            return Standing(count, self.standing(value, direction).better_count + self._older_count(value, number))
        if direction == "minimize":
            index = bisect_left(self.ranking, (value,))
            return Standing(count, index - (self.own is not None and self.own < index))
        index = bisect_right(self.ranking, (value, math.inf))
        return Standing(count, len(self.ranking) - index - (self.own is not None and self.own >= index))

    def _older_count(self, value: float, number: int) -> int:
        """The number of other trials that have the same value and a lower number."""
        first, last = bisect_left(self.ranking, (value,)), bisect_left(self.ranking, (value, number))
        return last - first - (self.own is not None and first <= self.own < last)

    def ranked(self, direction: Direction, first: int, count: int) -> Sequence[Peer]:
        """At most `count` peers from rank `first`, where the best has rank 0. Ties have a fixed order."""
        if direction == "minimize":
            others = self._ascending(first, count)
        else:
            stop = max(self.count() - first, 0)
            start = max(stop - count, 0)
            others = self._ascending(start, stop - start)[::-1]
        return [Peer(number, value) for value, number in others]

    def _ascending(self, first: int, count: int) -> Ranking:
        if self.own is None or first + count <= self.own:
            return self.ranking[first : first + count]
        start = first if first < self.own else first + 1
        return [one for index, one in enumerate(self.ranking[start : first + count + 1], start) if index != self.own]
