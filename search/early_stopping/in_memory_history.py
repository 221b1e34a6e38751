"""A history that is all at hand, for replays, simulations and tests."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from search.early_stopping.contract import AT_END, COMPLETED, Peer, Rule, Standing
from search.problem import Direction

Ranking = list[tuple[float, int]]
"""Values with their trials' numbers, in rising order."""


@dataclass
class Memory:
    """Every trial's curve, and who reached which milestone with what value."""

    curves: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    rankings: dict[tuple[int, int], Ranking] = field(default_factory=lambda: defaultdict(list))
    reached: dict[int, dict[int, tuple[float, int]]] = field(default_factory=lambda: defaultdict(dict))

    def of(self, number: int) -> "TrialMemory":
        return TrialMemory(self, number)

    def reach(self, number: int, milestone: int, value: float, pool: int) -> bool:
        if milestone in self.reached[number]:
            return False
        self.reached[number][milestone] = (value, pool)
        insort(self.rankings[milestone, pool], (value, number))
        return True

    def complete(self, rule: Rule, number: int, value: float) -> None:
        """What the service does with a trial that has completed."""
        if not rule.compares_completed:
            return
        for milestone, (reached, pool) in self.reached.pop(number, {}).items():
            ranking = self.rankings[milestone, pool]
            del ranking[bisect_left(ranking, (reached, number))]
            self.reach(number, milestone, reached, COMPLETED)
        self.reach(number, AT_END, value, COMPLETED)


@dataclass(frozen=True)
class TrialMemory:
    """`History` of a trial."""

    memory: Memory
    number: int

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        return self.memory.reach(self.number, milestone, value, pool)

    def peers(self, milestone: int, pool: int) -> "MemoryPeers":
        own = self.memory.reached[self.number].get(milestone)
        ranking = self.memory.rankings[milestone, pool]
        return MemoryPeers(ranking, bisect_left(ranking, (own[0], self.number)) if own and own[1] == pool else None)

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        return self.memory.curves[self.number if number is None else number]

    def best_value(self, direction: Direction) -> float:
        values = self.curve().values()
        return max(values) if direction == "maximize" else min(values)


@dataclass(frozen=True)
class MemoryPeers:
    """`Peers`: a ranking but for the trial itself, which is at the place `own`, if it is there."""

    ranking: Ranking
    own: int | None

    def count(self) -> int:
        return len(self.ranking) - (self.own is not None)

    def standing(self, value: float, direction: Direction, number: int | None = None) -> Standing:
        count = self.count()
        if number is not None:
            return Standing(count, self.standing(value, direction).better_count + self._older(value, number))
        if direction == "minimize":
            place = bisect_left(self.ranking, (value,))
            return Standing(count, place - (self.own is not None and self.own < place))
        place = bisect_right(self.ranking, value, key=lambda one: one[0])
        return Standing(count, len(self.ranking) - place - (self.own is not None and self.own >= place))

    def _older(self, value: float, number: int) -> int:
        """How many others have the value, and a lower number."""
        first, last = bisect_left(self.ranking, (value,)), bisect_left(self.ranking, (value, number))
        return last - first - (self.own is not None and first <= self.own < last)

    def ranked(self, direction: Direction, first: int, count: int) -> Sequence[Peer]:
        others = self._slice(first, count) if direction == "minimize" else self._downwards(first, count)
        return [Peer(number, value) for value, number in others]

    def _slice(self, first: int, count: int) -> Ranking:
        if self.own is None or first + count <= self.own:
            return self.ranking[first : first + count]
        start = first if first < self.own else first + 1
        return [one for place, one in enumerate(self.ranking[start : first + count + 1], start) if place != self.own]

    def _downwards(self, first: int, count: int) -> Ranking:
        stop = max(self.count() - first, 0)
        start = max(stop - count, 0)
        return self._slice(start, stop - start)[::-1]
