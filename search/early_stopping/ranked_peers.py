"""Peers that are held in memory as a sorted list."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from search.early_stopping.history import Peer, Standing
from search.problem import Direction

Ranking = list[tuple[float, int]]
"""Values with the numbers of their trials, ascending."""


@dataclass(frozen=True)
class RankedPeers:
    """`Peers` from a ranking; `own` is the index of the trial that is compared with them, if it is in the ranking."""

    ranking: Ranking
    own: int | None

    def count(self) -> int:
        return len(self.ranking) - (self.own is not None)

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
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
