"""Who has reached the milestones of an experiment: read once, and from then on only what others have changed."""

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session

from search.early_stopping.memory import MemoryPeers, Ranking
from service.store.bulk import Rows
from service.store.tables import ExperimentRow, MilestoneRow
from service.store.writing import add_later, change_later

KNOWN = "paceline_known_milestones"
_TAKEN = "paceline_milestones"

MOST = 300_000
"""Trials at milestones that are remembered, of all experiments together: some 60 MB."""

_PAGE = 1000

NO_NUMBER = -1
"""That of no trial."""


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

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def put(self, number: int, value: float, pool: int) -> None:
        """A new one, or one that moves to another pool."""
        if number in self._places:
            old, left = self._places[number]
            del self._rankings[left][bisect_left(self._rankings[left], (old, number))]
        self._places[number] = value, pool
        insort(self._rankings[pool], (value, number))

    def peers(self, pool: int, but: int = NO_NUMBER) -> MemoryPeers:
        """All of a pool, without the trial with the number `but`, if one is named."""
        ranking, own = self._rankings[pool], self._places.get(but)
        is_among = own is not None and own[1] == pool
        return MemoryPeers(ranking, bisect_left(ranking, (own[0], but)) if own and is_among else None)


@dataclass
class Milestones:
    """Those of an experiment, for one transaction under its lock; what is changed here is written with its flush.

    `count` is the experiment's `milestone_count` up to which those that were read are known.
    """

    session: Session
    experiment: ExperimentRow
    count: int = 0
    reached: OrderedDict[int, Reached] = field(default_factory=OrderedDict)

    def at(self, milestone: int) -> Reached:
        if milestone not in self.reached:
            query = select(MilestoneRow.number, MilestoneRow.value, MilestoneRow.pool)
            query = query.where(MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.milestone == milestone)
            self.reached[milestone] = Reached(self.session.connection().execute(query))
        self.reached.move_to_end(milestone)
        return self.reached[milestone]

    def add(self, trial_id: str, number: int, milestone: int, value: float, pool: int) -> bool:
        """False, and nothing changed, if it was there already."""
        reached = self.at(milestone)
        if number in reached:
            return False
        reached.put(number, value, pool)
        self.count += 1
        change_later(self.experiment, milestone_count=self.count)
        add_later(self.session, MilestoneRow, _row(self, trial_id, number, milestone, value, pool))
        return True

    def move(self, trial_id: str, number: int, milestones: Select[int], pool: int) -> None:
        """To another pool, at those of these milestones that it has reached."""
        self.session.flush()
        self.count += 1
        change_later(self.experiment, milestone_count=self.count)
        own = (MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.trial_id == trial_id)
        moving = update(MilestoneRow).where(*own, MilestoneRow.milestone.in_(milestones))
        moved = moving.values(pool=pool, change=self.count).returning(MilestoneRow.milestone, MilestoneRow.value)
        for milestone, value in self.session.connection().execute(moved):
            if milestone in self.reached:
                self.reached[milestone].put(number, value, pool)

    def catch_up(self) -> None:
        """What other processes have changed since."""
        columns = (MilestoneRow.milestone, MilestoneRow.number, MilestoneRow.value, MilestoneRow.pool)
        newer = select(*columns).where(MilestoneRow.experiment_id == self.experiment.id)
        for milestone, number, value, pool in self.session.execute(newer.where(MilestoneRow.change > self.count)):
            if milestone in self.reached:
                self.reached[milestone].put(number, value, pool)
        self.count = self.experiment.milestone_count


@dataclass(frozen=True)
class _Known:
    spec_changed_at_event: int
    count: int
    reached: OrderedDict[int, Reached]

    @property
    def size(self) -> int:
        return sum(map(len, self.reached.values()))


class KnownMilestones:
    """What transactions have found out of milestones, for those that follow. For any thread.

    Whoever works on an experiment takes its milestones out, and puts them back when all of it has been committed:
    nothing that was rolled back is ever known. They may be out of date by then, which the experiment's row tells.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._guard = Lock()

    def take(self, session: Session, experiment: ExperimentRow) -> Milestones:
        with self._guard:
            known = self._known.pop(experiment.id, None)
        # Only with a change of the spec are any taken back.
        if known is None or known.spec_changed_at_event != experiment.spec_changed_at_event:
            return Milestones(session, experiment, experiment.milestone_count)
        found = Milestones(session, experiment, known.count, known.reached)
        if found.count != experiment.milestone_count:
            found.catch_up()
        return found

    def keep(self, session: Session) -> None:
        """After the session's commit."""
        taken: Mapping[str, Milestones] = session.info.pop(_TAKEN, {})
        with self._guard:
            for id_, one in taken.items():
                self._known[id_] = _Known(one.experiment.spec_changed_at_event, one.count, one.reached)
            if taken:
                self._forget()

    def _forget(self) -> None:
        """Of too many those that were not looked at for longest."""
        size = sum(known.size for known in self._known.values())
        while size > MOST:
            id_, known = next(iter(self._known.items()))
            if known.reached:
                size -= len(known.reached.popitem(last=False)[1])
            else:
                del self._known[id_]


def milestones_of(session: Session, experiment_id: str) -> Milestones:
    """The caller holds the experiment's lock."""
    taken: dict[str, Milestones] = session.info.setdefault(_TAKEN, {})
    if experiment_id not in taken:
        known: KnownMilestones = session.info[KNOWN]
        taken[experiment_id] = known.take(session, session.get_one(ExperimentRow, experiment_id))
    return taken[experiment_id]


def replace_milestones(
    session: Session, experiment: ExperimentRow, rows: Iterable[tuple[str, int, int, float, int]]
) -> None:
    """Of an experiment whose spec has been changed; each is a trial's id and number, milestone, value and pool."""
    session.info.get(_TAKEN, {}).pop(experiment.id, None)
    session.flush()
    session.execute(delete(MilestoneRow).where(MilestoneRow.experiment_id == experiment.id))
    fresh = Milestones(session, experiment, experiment.milestone_count + 1)
    change_later(experiment, milestone_count=fresh.count)
    found: Rows = [_row(fresh, *row) for row in rows]
    for first in range(0, len(found), _PAGE):
        session.execute(insert(MilestoneRow), found[first : first + _PAGE])


def _row(milestones: Milestones, trial_id: str, number: int, milestone: int, value: float, pool: int) -> dict[str, Any]:
    return {
        "experiment_id": milestones.experiment.id,
        "milestone": milestone,
        "trial_id": trial_id,
        "number": number,
        "pool": pool,
        "value": value,
        "change": milestones.count,
    }
