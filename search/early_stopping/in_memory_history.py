"""A history in memory, for replays, simulations and tests."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from search.early_stopping.history import AT_END, COMPLETED
from search.early_stopping.in_memory_curve import InMemoryCurve
from search.early_stopping.peers import Peers, Ranking
from search.early_stopping.plugin_rules import has_trait, pool_of, value_at_end
from search.early_stopping.rule import Rule
from search.problem import Direction


@dataclass
class InMemoryHistory:
    """The curve of every trial, and the value and the pool with which each trial reached each milestone."""

    curves: dict[int, InMemoryCurve] = field(default_factory=lambda: defaultdict(InMemoryCurve))
    rankings: dict[tuple[int, int], Ranking] = field(default_factory=lambda: defaultdict(list))
    reached: dict[int, dict[int, tuple[float, int]]] = field(default_factory=lambda: defaultdict(dict))

    def of(self, number: int) -> "InMemoryTrialHistory":
        return InMemoryTrialHistory(self, number)

    def reach(self, number: int, milestone: int, value: float, pool: int) -> bool:
        if milestone in self.reached[number]:
            return False
        self.reached[number][milestone] = (value, pool)
        insort(self.rankings[milestone, pool], (value, number))
        return True

    def complete(self, rule: Rule, number: int, last_value: float) -> None:
        """Record that the trial has ended by itself or by its time limit, as the service does; again after a retry.

        Without effect if the rule has no value for the end.
        """
        value = value_at_end(rule, last_value, self.of(number)) if has_trait(rule, "keeps_ends") else None
        if value is None:
            return
        if has_trait(rule, "compares_completed"):
            for milestone, (reached, pool) in self.reached.pop(number, {}).items():
                self._remove(number, milestone, reached, pool)
                self.reach(number, milestone, reached, COMPLETED)
        if earlier := self.reached[number].pop(AT_END, None):
            self._remove(number, AT_END, *earlier)
        self.reach(number, AT_END, value, COMPLETED)

    def reopen(self, rule: Rule, number: int, bracket: int | None) -> None:
        """Undo `complete` when the trial is retried. Without effect on one that has not run to its end."""
        earlier = self.reached[number].pop(AT_END, None)
        if earlier is None:
            return
        self._remove(number, AT_END, *earlier)
        if has_trait(rule, "compares_completed"):
            running = pool_of(rule, number, bracket)
            for milestone, (reached, pool) in self.reached.pop(number, {}).items():
                self._remove(number, milestone, reached, pool)
                self.reach(number, milestone, reached, running)

    def _remove(self, number: int, milestone: int, value: float, pool: int) -> None:
        ranking = self.rankings[milestone, pool]
        del ranking[bisect_left(ranking, (value, number))]

    def newest(self, count: int) -> Sequence[int]:
        """Implements, with `value_at`, the port `CompletedTrials`."""
        return sorted(nlargest(count, (number for _, number in self.rankings[AT_END, COMPLETED])))

    def value_at(self, number: int, milestone: int) -> float | None:
        reached = self.reached[number].get(milestone)
        return None if reached is None else reached[0]


@dataclass(frozen=True)
class InMemoryTrialHistory:
    """`History` of a trial."""

    history: InMemoryHistory
    number: int

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        return self.history.reach(self.number, milestone, value, pool)

    def peers(self, milestone: int, pool: int) -> Peers:
        own = self.history.reached[self.number].get(milestone)
        ranking = self.history.rankings[milestone, pool]
        return Peers(ranking, bisect_left(ranking, (own[0], self.number)) if own and own[1] == pool else None)

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        return self.history.curves[self.number if number is None else number].by_step

    def best_value(self, direction: Direction) -> float:
        return self.history.curves[self.number].best(direction)

    def best_since_and_before(self, count: int, direction: Direction) -> tuple[float, float] | None:
        return self.history.curves[self.number].best_since_and_before(count, direction)
