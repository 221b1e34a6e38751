"""Who has reached the milestones of experiments, as a process remembers it from one transaction to the next."""

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from search.early_stopping.ranked_peers import RankedPeers, Ranking

MOST = 300_000
"""What is remembered weighs no more, of all experiments together: some 60 MB. A trial at a milestone weighs 1."""

OF_ITSELF = 5
"""What a milestone weighs at which nobody is, and an experiment without a milestone."""


class Reached:
    """Those who have reached one milestone, by number, with the value and the pool that they are compared in."""

    def __init__(self, rows: Iterable[tuple[int, float, int]]) -> None:
        self._places: dict[int, tuple[float, int]] = {}
        self._rankings: defaultdict[int, Ranking] = defaultdict(list)
        for number, value, pool in rows:
            self._places[number] = value, pool
            self._rankings[pool].append((value, number))
        for ranking in self._rankings.values():
            ranking.sort()

    def __contains__(self, number: int) -> bool:
        return number in self._places

    @property
    def weight(self) -> int:
        return OF_ITSELF + len(self._places)

    def put(self, number: int, value: float, pool: int) -> None:
        """A new one, or one that moves to another pool."""
        if number in self._places:
            old, left = self._places[number]
            del self._rankings[left][bisect_left(self._rankings[left], (old, number))]
        self._places[number] = value, pool
        insort(self._rankings[pool], (value, number))

    def peers(self, pool: int, but: int | None = None) -> RankedPeers:
        """All of a pool, without the trial with the number `but`, if one is named."""
        ranking, own = self._rankings[pool], None if but is None else self._places.get(but)
        is_among = own is not None and own[1] == pool
        return RankedPeers(ranking, bisect_left(ranking, (own[0], but)) if own and is_among else None)


@dataclass
class Known:
    """The milestones of an experiment that somebody has asked about, of the spec since that event.

    They are as the change number `count` left them. `weight`: all of theirs, and the experiment's own.
    """

    spec_changed_at_event: int
    count: int
    reached: dict[int, Reached] = field(default_factory=dict)
    weight: int = OF_ITSELF

    def learn(self, milestone: int, rows: Iterable[tuple[int, float, int]]) -> None:
        found = self.reached[milestone] = Reached(rows)
        self.weight += found.weight

    def put(self, number: int, milestone: int, value: float, pool: int) -> None:
        """Nothing, where nobody has asked about the milestone."""
        found = self.reached.get(milestone)
        if found is not None:
            before = found.weight
            found.put(number, value, pool)
            self.weight += found.weight - before

    def forget(self) -> None:
        """The milestone that was learnt last. Those who walk through all of them find the first ones again."""
        _, found = self.reached.popitem()
        self.weight -= found.weight


class KnownMilestones:
    """What transactions have found out of milestones, for those that follow. For any thread.

    Whoever works on an experiment takes its milestones out, and puts them back when all of it has been committed:
    nothing that was rolled back is ever known. They may be out of date by then, which the experiment's row tells.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._weight = 0
        self._guard = Lock()

    def take(self, experiment_id: str, spec_changed_at_event: int, count: int) -> Known:
        """Of an experiment whose newest change of milestones is number `count`."""
        with self._guard:
            known = self._pop(experiment_id)
        # Only with a change of the spec are any taken back; or by a standby that has not heard of the newest.
        if known is None or known.spec_changed_at_event != spec_changed_at_event or known.count > count:
            return Known(spec_changed_at_event, count)
        return known

    def keep(self, known: Mapping[str, Known]) -> None:
        """By their experiments, after the commit."""
        with self._guard:
            for experiment_id, one in known.items():
                self._pop(experiment_id)
                self._known[experiment_id] = one
                self._weight += one.weight
            self._forget()

    def clear(self) -> None:
        with self._guard:
            self._known.clear()
            self._weight = 0

    def _pop(self, experiment_id: str) -> Known | None:
        known = self._known.pop(experiment_id, None)
        self._weight -= known.weight if known else 0
        return known

    def _forget(self) -> None:
        """Of too many first what belongs to the experiment that nobody has worked on for longest."""
        while self._weight > MOST:
            experiment_id, known = next(iter(self._known.items()))
            if not known.reached:
                self._pop(experiment_id)
                continue
            before = known.weight
            known.forget()
            self._weight -= before - known.weight
