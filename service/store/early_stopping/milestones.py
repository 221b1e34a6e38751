"""The stored milestones of an experiment. A process reads each once, and then only what other processes change."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, UNCOMPARED
from service.store.early_stopping.milestone_cache import (
    BASE_WEIGHT,
    ExperimentMilestones,
    MilestoneCache,
    MilestoneTrials,
)
from service.store.sql.bulk_writes import WriteSession, add_later, change_later
from service.store.sql.process_caches import process_caches
from service.store.tables import ExperimentRow, MilestoneRow

_PAGE = 1000
_TAKEN = "taken_milestones"
"""In a session's `info`: by experiment, the `Milestones` that it has taken from the cache."""


@dataclass(frozen=True)
class Milestones:
    """The milestones of an experiment during one transaction that holds its lock."""

    session: Session
    experiment: ExperimentRow
    cached: ExperimentMilestones

    def at(self, milestone: int) -> MilestoneTrials:
        if milestone not in self.cached.milestones:
            query = select(MilestoneRow.number, MilestoneRow.value, MilestoneRow.pool)
            query = query.where(MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.milestone == milestone)
            self.cached.load(milestone, self.session.connection().execute(query))
        return self.cached.milestones[milestone]

    def add(self, trial_id: str, number: int, milestone: int, value: float, pool: int, *, is_new: bool = False) -> bool:
        """Return False, and change nothing, if the trial has reached the milestone before.

        `is_new`: the caller knows that it has not, so the milestone is not read.
        """
        if not is_new and number in self.at(milestone):
            return False
        change = self._next_change()
        self.cached.put(number, milestone, value, pool)
        add_later(
            self.session, MilestoneRow, _columns(self.experiment, change, trial_id, number, milestone, value, pool)
        )
        return True

    def put_end(self, trial_id: str, number: int, value: float) -> None:
        """Store a trial's end; it may have ended before, and was retried then."""
        if not self.add(trial_id, number, AT_END, value, COMPLETED):
            self._change_end(trial_id, number, value, COMPLETED)

    def withdraw_end(self, trial_id: str, number: int) -> bool:
        """Compare no other trial with the end of this one, which is retried. False if it has not reached its end.

        The row stays, so that other processes notice the change.
        """
        value = self.at(AT_END).value_of(number)
        if value is not None:
            self._change_end(trial_id, number, value, UNCOMPARED)
        return value is not None

    def _change_end(self, trial_id: str, number: int, value: float, pool: int) -> None:
        own = (MilestoneRow.experiment_id == self.experiment.id, MilestoneRow.trial_id == trial_id)
        changing = update(MilestoneRow).where(*own, MilestoneRow.milestone == AT_END)
        self.session.connection().execute(changing.values(value=value, pool=pool, change=self._next_change()))
        self.cached.put(number, AT_END, value, pool)

    def move(self, trial_id: str, number: int, pool: int, *, only_from: int | None = None) -> None:
        """Move the trial to another pool at all milestones but its end, or at those of them that are in `only_from`."""
        change = self._next_change()
        moving = update(MilestoneRow).where(MilestoneRow.trial_id == trial_id, MilestoneRow.milestone != AT_END)
        if only_from is not None:
            moving = moving.where(MilestoneRow.pool == only_from)
        moved = moving.values(pool=pool, change=change).returning(MilestoneRow.milestone, MilestoneRow.value)
        for milestone, value in self.session.connection().execute(moved):
            self.cached.put(number, milestone, value, pool)

    def catch_up(self) -> None:
        """Apply what other processes have changed."""
        if self.cached.milestones:
            columns = (MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool)
            newer = select(*columns).where(MilestoneRow.experiment_id == self.experiment.id)
            for row in self.session.execute(newer.where(MilestoneRow.change > self.cached.change_count)):
                self.cached.put(*row)
        self.cached.change_count = self.experiment.milestone_count

    def _next_change(self) -> int:
        self.cached.change_count += 1
        change_later(self.experiment, milestone_count=self.cached.change_count)
        return self.cached.change_count


def milestones_of(session: Session, experiment_id: str) -> Milestones:
    """The caller holds the experiment's lock."""
    taken: dict[str, Milestones] = session.info.setdefault(_TAKEN, {})
    if experiment_id not in taken:
        experiment = session.get_one(ExperimentRow, experiment_id)
        cache = process_caches(session).of(MilestoneCache)
        cached = cache.take(experiment_id, experiment.spec_changed_at_event, experiment.milestone_count)
        cast(WriteSession, session).after_commit.append(partial(cache.put_back, experiment_id, cached))
        found = taken[experiment_id] = Milestones(session, experiment, cached)
        if cached.change_count != experiment.milestone_count:
            found.catch_up()
    return taken[experiment_id]


class ReachedMilestone(NamedTuple):
    """A trial's value at a milestone, and the number of the row's last change."""

    number: int
    milestone: int
    value: float
    change: int


def milestones_changed_after(session: Session, experiment_id: str, change: int) -> list[ReachedMilestone]:
    """The milestones at which trials were compared, so without the ends of trials."""
    columns = MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.change
    newer = MilestoneRow.experiment_id == experiment_id, MilestoneRow.change > change
    compared = MilestoneRow.milestone != AT_END, MilestoneRow.pool != UNCOMPARED
    return [ReachedMilestone(*row) for row in session.execute(select(*columns).where(*newer, *compared))]


def replace_milestones(
    session: Session, experiment: ExperimentRow, rows: Iterable[tuple[str, int, int, float, int]]
) -> None:
    """Store new milestones after a change of the spec. A row is trial id, number, milestone, value and pool."""
    if (taken := session.info.get(_TAKEN, {}).pop(experiment.id, None)) is not None:
        taken.cached.shrink_to(BASE_WEIGHT)  # what is put back after the commit is empty
    session.execute(delete(MilestoneRow).where(MilestoneRow.experiment_id == experiment.id))
    change = experiment.milestone_count + 1
    change_later(experiment, milestone_count=change)
    columns = [_columns(experiment, change, *row) for row in rows]
    for first in range(0, len(columns), _PAGE):
        session.execute(insert(MilestoneRow), columns[first : first + _PAGE])


def _columns(
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
