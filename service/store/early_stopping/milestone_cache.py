"""Keeps the trials at each milestone in memory from one transaction to the next."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from threading import Lock

from cachetools import LRUCache

from search.early_stopping.peers import Peers, Ranking

MAX_WEIGHT = 300_000
"""Of all cached experiments together, some 60 MB. A trial at a milestone weighs 1."""

BASE_WEIGHT = 5
"""Of a milestone without trials, and of an experiment without milestones."""


class MilestoneTrials:
    """The trials that have reached one milestone: by number, each with its value and its pool."""

    def __init__(self, rows: Iterable[tuple[int, float, int]]) -> None:
        self._trials: dict[int, tuple[float, int]] = {}
        self._rankings: defaultdict[int, Ranking] = defaultdict(list)
        for number, value, pool in rows:
            self._trials[number] = value, pool
            self._rankings[pool].append((value, number))
        for ranking in self._rankings.values():
            ranking.sort()

    def __contains__(self, number: int) -> bool:
        return number in self._trials

    @property
    def weight(self) -> int:
        return BASE_WEIGHT + len(self._trials)

    def put(self, number: int, value: float, pool: int) -> bool:
        """Add a trial, or move it to another pool. Return whether it was added."""
        is_new = number not in self._trials
        if not is_new:
            old_value, old_pool = self._trials[number]
            del self._rankings[old_pool][bisect_left(self._rankings[old_pool], (old_value, number))]
        self._trials[number] = value, pool
        insort(self._rankings[pool], (value, number))
        return is_new

    def newest(self, count: int, pool: int) -> Sequence[int]:
        """The highest numbers of the trials of a pool, at most `count`, ascending."""
        return sorted(nlargest(count, (number for _, number in self._rankings[pool])))

    def value_of(self, number: int) -> float | None:
        reached = self._trials.get(number)
        return None if reached is None else reached[0]

    def peers(self, pool: int, but: int | None = None) -> Peers:
        """All trials of a pool, without the trial number `but`."""
        ranking, own = self._rankings[pool], None if but is None else self._trials.get(but)
        is_included = own is not None and own[1] == pool
        return Peers(ranking, bisect_left(ranking, (own[0], but)) if own and is_included else None)


@dataclass
class ExperimentMilestones:
    """The milestones of an experiment that have been read so far, under one version of its spec.

    They include the changes up to number `change_count` (`ExperimentRow.milestone_count`). `weight` is the total.
    """

    spec_changed_at_event: int
    change_count: int
    milestones: dict[int, MilestoneTrials] = field(default_factory=dict)
    weight: int = BASE_WEIGHT

    def load(self, milestone: int, rows: Iterable[tuple[int, float, int]]) -> None:
        loaded = self.milestones[milestone] = MilestoneTrials(rows)
        self.weight += loaded.weight

    def put(self, number: int, milestone: int, value: float, pool: int) -> None:
        """Has no effect on a milestone that has not been read."""
        trials = self.milestones.get(milestone)
        if trials is not None:
            self.weight += trials.put(number, value, pool)

    def shrink_to(self, max_weight: int) -> bool:
        """Drop the milestones that were loaded last, so that a loop over all of them still finds the first ones.

        Return False if it is too heavy even without milestones.
        """
        while self.weight > max_weight and self.milestones:
            _, dropped = self.milestones.popitem()
            self.weight -= dropped.weight
        return self.weight <= max_weight


class MilestoneCache:
    """The milestones that earlier transactions have read. Thread-safe.

    A transaction takes an experiment's milestones out and puts them back after its commit, so the cache never holds
    what was rolled back. Other processes may have changed the milestones since: `ExperimentRow.milestone_count` tells.
    """

    def __init__(self) -> None:
        self._max_weight = MAX_WEIGHT
        self._experiments = LRUCache[str, ExperimentMilestones](MAX_WEIGHT, getsizeof=attrgetter("weight"))
        self._lock = Lock()

    def take(self, experiment_id: str, spec_changed_at_event: int, change_count: int) -> ExperimentMilestones:
        """Return the cached milestones, or empty ones. `change_count` is the number of the newest change."""
        with self._lock:
            cached = self._experiments.pop(experiment_id, None)
        # The count decreases only if a standby takes over that lacks the last commits.
        if (
            cached is None
            or cached.spec_changed_at_event != spec_changed_at_event
            or cached.change_count > change_count
        ):
            return ExperimentMilestones(spec_changed_at_event, change_count)
        return cached

    def put_back(self, experiment_id: str, milestones: ExperimentMilestones) -> None:
        """After the commit."""
        with self._lock:
            self._experiments.pop(experiment_id, None)
            if milestones.shrink_to(self._max_weight):
                self._experiments[experiment_id] = milestones
