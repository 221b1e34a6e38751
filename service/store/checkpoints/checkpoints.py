"""Queries on the checkpoints of trials and experiments."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from search.problem import Direction, sign_of
from service.store.sql.bulk_writes import change_later
from service.store.tables import AttemptRow, CheckpointRow, ExperimentRow, TrialRow


def is_present() -> ColumnElement[bool]:
    """The condition for checkpoints that retention has not removed."""
    return CheckpointRow.removed_at.is_(None)


def checkpoint_at(session: Session, trial_id: str, step: int) -> CheckpointRow | None:
    """The checkpoint, also if retention has removed it."""
    return session.get(CheckpointRow, (trial_id, step))


def page_of_checkpoints(session: Session, trial_id: str, before_step: int, limit: int) -> Sequence[CheckpointRow]:
    """The newest step first."""
    query = select(CheckpointRow).where(CheckpointRow.trial_id == trial_id, CheckpointRow.step < before_step)
    return session.scalars(query.order_by(CheckpointRow.step.desc()).limit(limit)).all()


def checkpoints_of(session: Session, trial_id: str) -> Sequence[CheckpointRow]:
    """In the order of attempts and of their reports; without those that retention has removed."""
    query = select(CheckpointRow).where(CheckpointRow.trial_id == trial_id, is_present())
    return session.scalars(query.order_by(CheckpointRow.attempt, CheckpointRow.sequence)).all()


def best_of(checkpoints: Iterable[CheckpointRow], direction: Direction) -> CheckpointRow | None:
    """The checkpoint with the best value, of equal ones that of the first step; None if no value is known."""
    ranked = [(sign_of(direction) * row.value, row.step, row) for row in checkpoints if row.value is not None]
    return min(ranked, key=itemgetter(0, 1))[-1] if ranked else None


def best_checkpoints(session: Session, trial_ids: Collection[str], direction: Direction) -> dict[str, CheckpointRow]:
    """The best checkpoint on the storage of each trial, by trial. Trials without one that has a value are left out."""
    by_value = CheckpointRow.value.asc() if direction == "minimize" else CheckpointRow.value.desc()
    rank = func.row_number().over(partition_by=CheckpointRow.trial_id, order_by=(by_value, CheckpointRow.step))
    valued = CheckpointRow.trial_id.in_(trial_ids), is_present(), CheckpointRow.value.is_not(None)
    ranked = select(CheckpointRow.trial_id, CheckpointRow.step, rank.label("rank")).where(*valued).subquery()
    is_best = (
        (ranked.c.rank == 1) & (CheckpointRow.trial_id == ranked.c.trial_id) & (CheckpointRow.step == ranked.c.step)
    )
    return {row.trial_id: row for row in session.scalars(select(CheckpointRow).join(ranked, is_best))}


def bytes_of_trials(session: Session, trial_ids: Collection[str]) -> dict[str, int | None]:
    """The sum of the known sizes of each trial's checkpoints; None if none is known. Trials without any are missing."""
    query = select(CheckpointRow.trial_id, func.sum(CheckpointRow.bytes)).where(
        CheckpointRow.trial_id.in_(trial_ids), is_present()
    )
    found = session.execute(query.group_by(CheckpointRow.trial_id))
    return {trial_id: None if total is None else int(total) for trial_id, total in found}


def count_bytes(experiment: ExperimentRow, added: int | None = None, removed: int | None = None) -> None:
    """Add a checkpoint's size to its experiment's sum, or take it away, under the experiment's lock."""
    difference = (added or 0) - (removed or 0)
    if difference:
        change_later(experiment, checkpoint_bytes=experiment.checkpoint_bytes + difference)


class RetainingExperiment(NamedTuple):
    id: str
    event_count: int
    has_unpinned: bool


def experiments_with_retention(session: Session) -> list[RetainingExperiment]:
    """Experiments that keep the checkpoints of their best trials only, and those in which one was unpinned."""
    columns = [getattr(ExperimentRow, name) for name in RetainingExperiment._fields]
    keeps_best = ExperimentRow.spec[("checkpoints", "keep_best_trials")].as_string().is_not(None)
    found = session.execute(select(*columns).where(or_(keeps_best, ExperimentRow.has_unpinned)))
    return [RetainingExperiment(*row) for row in found]


def note_unpinned_done(session: Session, experiment_id: str, event_count: int) -> None:
    """Retention has looked at the experiment as of this event. Without effect if one was unpinned since."""
    is_same = ExperimentRow.id == experiment_id, ExperimentRow.event_count == event_count
    session.execute(update(ExperimentRow).where(*is_same).values(has_unpinned=False))


class RankedTrial(NamedTuple):
    """What ranks a trial, as in its row. Confirmations are not ranked."""

    id: str
    number: int
    status: str
    value: float | None
    values: dict[str, Any] | None
    violation: float | None
    ended_at: datetime | None
    confirms: int | None


def ranked_trials(session: Session, experiment_id: str) -> list[RankedTrial]:
    """All trials of the experiment, by number."""
    columns = [getattr(TrialRow, name) for name in RankedTrial._fields]
    query = select(*columns).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.number)
    return [RankedTrial(*row) for row in session.execute(query)]


def present_checkpoints(session: Session, experiment_id: str) -> Sequence[tuple[CheckpointRow, int, str | None]]:
    """Each with its trial's number and the holder that saved it, by trial number and step."""
    saved_by = (AttemptRow.trial_id == CheckpointRow.trial_id) & (AttemptRow.number == CheckpointRow.attempt)
    query = (
        select(CheckpointRow, TrialRow.number, AttemptRow.holder)
        .join(TrialRow, TrialRow.id == CheckpointRow.trial_id)
        .outerjoin(AttemptRow, saved_by)
        .where(TrialRow.experiment_id == experiment_id, is_present())
    )
    rows = session.execute(query.order_by(TrialRow.number, CheckpointRow.step))
    return [(row, number, holder) for row, number, holder in rows]


def present_checkpoints_of(session: Session, trial_ids: Collection[str]) -> dict[tuple[str, int], CheckpointRow]:
    """The present checkpoints of these trials, by trial and step."""
    query = select(CheckpointRow).where(CheckpointRow.trial_id.in_(trial_ids), is_present())
    return {(row.trial_id, row.step): row for row in session.scalars(query)}


def uris_in_use(session: Session, experiment_id: str) -> set[str]:
    """The checkpoints that running attempts of the experiment have resumed from."""
    query = select(AttemptRow.resume_uri).where(
        AttemptRow.experiment_id == experiment_id, AttemptRow.ended_at.is_(None), AttemptRow.resume_uri.is_not(None)
    )
    return {uri for uri in session.scalars(query) if uri is not None}
