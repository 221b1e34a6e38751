"""Milestones as they are stored: a process reads those that it is asked about once, and then what others change."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session

from service.store.early_stopping.milestone_cache import Known, KnownMilestones, Reached
from service.store.sql.write_session import WriteSession, add_later, change_later
from service.store.tables import ExperimentRow, MilestoneRow

_PAGE = 1000


@dataclass(frozen=True)
class Milestones:
    """Those of an experiment, for one transaction under its lock; what is changed here is written with its flush."""

    session: Session
    experiment: ExperimentRow
    known: Known

    def at(self, milestone: int) -> Reached:
        if milestone not in self.known.reached:
            self.session.flush()  # whoever has come there while nobody asked
            query = select(MilestoneRow.number, MilestoneRow.value, MilestoneRow.pool)
            query = query.where(MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.milestone == milestone)
            self.known.learn(milestone, self.session.connection().execute(query))
        return self.known.reached[milestone]

    def add(self, trial_id: str, number: int, milestone: int, value: float, pool: int, *, is_new: bool = False) -> bool:
        """False, and nothing changed, if it was there already.

        `is_new`: the trial has never been there, so that nobody needs to look, and who is there stays unknown.
        """
        if not is_new and number in self.at(milestone):
            return False
        change = self._count_on()
        self.known.put(number, milestone, value, pool)
        add_later(self.session, MilestoneRow, _row(self.experiment, change, trial_id, number, milestone, value, pool))
        return True

    def move(self, trial_id: str, number: int, milestones: Select[int], pool: int) -> None:
        """To another pool, at those of these milestones that it has reached."""
        self.session.flush()
        change = self._count_on()
        own = (MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.trial_id == trial_id)
        moving = update(MilestoneRow).where(*own, MilestoneRow.milestone.in_(milestones))
        moved = moving.values(pool=pool, change=change).returning(MilestoneRow.milestone, MilestoneRow.value)
        for milestone, value in self.session.connection().execute(moved):
            self.known.put(number, milestone, value, pool)

    def catch_up(self) -> None:
        """What other processes have changed since."""
        if self.known.reached:
            columns = (MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool)
            newer = select(*columns).where(MilestoneRow.experiment_id == self.experiment.id)
            for row in self.session.execute(newer.where(MilestoneRow.change > self.known.count)):
                self.known.put(*row)
        self.known.count = self.experiment.milestone_count

    def _count_on(self) -> int:
        self.known.count += 1
        change_later(self.experiment, milestone_count=self.known.count)
        return self.known.count


class MilestoneSession(WriteSession):
    """One that goes by what is `known` of milestones, and adds to it once it has committed."""

    def __init__(self, *arguments: Any, known: KnownMilestones, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.known = known
        self.milestones: dict[str, Milestones] = {}

    def keep_milestones(self) -> None:
        """After the commit."""
        if self.milestones:
            self.known.keep({id_: one.known for id_, one in self.milestones.items()})
            self.milestones = {}


def milestones_of(session: Session, experiment_id: str) -> Milestones:
    """The caller holds the experiment's lock."""
    session = _remembering(session)
    if experiment_id not in session.milestones:
        experiment = session.get_one(ExperimentRow, experiment_id)
        known = session.known.take(experiment_id, experiment.spec_changed_at_event, experiment.milestone_count)
        found = session.milestones[experiment_id] = Milestones(session, experiment, known)
        if known.count != experiment.milestone_count:
            found.catch_up()
    return session.milestones[experiment_id]


def replace_milestones(
    session: Session, experiment: ExperimentRow, rows: Iterable[tuple[str, int, int, float, int]]
) -> None:
    """Of an experiment whose spec has been changed; each is a trial's id and number, milestone, value and pool."""
    _remembering(session).milestones.pop(experiment.id, None)
    session.flush()
    session.execute(delete(MilestoneRow).where(MilestoneRow.experiment_id == experiment.id))
    change = experiment.milestone_count + 1
    change_later(experiment, milestone_count=change)
    found = [_row(experiment, change, *row) for row in rows]
    for first in range(0, len(found), _PAGE):
        session.execute(insert(MilestoneRow), found[first : first + _PAGE])


def _row(
    experiment: ExperimentRow, change: int, trial_id: str, number: int, milestone: int, value: float, pool: int
) -> dict[str, Any]:
    """The columns of a `MilestoneRow`."""
    return {
        "experiment_id": experiment.id,
        "milestone": milestone,
        "trial_id": trial_id,
        "number": number,
        "pool": pool,
        "value": value,
        "change": change,
    }


def _remembering(session: Session) -> MilestoneSession:
    assert isinstance(session, MilestoneSession)  # noqa: S101 - `Database.write` gives no other
    return session
