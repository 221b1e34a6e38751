"""Queries on trials."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Select, bindparam, func, select
from sqlalchemy.orm import Session

from service.domain.statuses import ELIGIBLE_FOR_BEST, LIVE_EXPERIMENT, TrialStatus
from service.store.tables import ExperimentRow, TrialRow


def is_of_search() -> ColumnElement[bool]:
    """The condition for all trials but confirmations, which are further values of trials that the search has."""
    return TrialRow.confirms.is_(None)


_COUNTS = (
    select(TrialRow.experiment_id, TrialRow.status, func.count())
    .where(TrialRow.experiment_id.in_(bindparam("experiment_ids", expanding=True)))
    .where(TrialRow.status.in_(bindparam("statuses", expanding=True)))
    .group_by(TrialRow.experiment_id, TrialRow.status)
)
"""Built once: each claim and each end of a trial asks for it several times, and to build it took longer than to ask."""


def counts_by_status(
    session: Session, experiment_id: str, statuses: Collection[TrialStatus] = tuple(TrialStatus)
) -> dict[str, int]:
    """The number of trials in each of the statuses, including statuses without trials."""
    return counts_of_all(session, [experiment_id], statuses)[experiment_id]


def counts_of_all(
    session: Session, experiment_ids: Collection[str], statuses: Collection[TrialStatus] = tuple(TrialStatus)
) -> dict[str, dict[str, int]]:
    """As `counts_by_status`, by experiment."""
    counts = {key: {status.value: 0 for status in statuses} for key in experiment_ids}
    wanted = {"experiment_ids": list(experiment_ids), "statuses": list(statuses)}
    for experiment_id, status, count in session.execute(_COUNTS, wanted):
        counts[experiment_id][status] = count
    return counts


def any_in_first_attempt(session: Session, experiment_id: str) -> bool:
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.status == TrialStatus.RUNNING)
    return session.scalar(query.where(TrialRow.attempt_count == 1).limit(1)) is not None


def any_reported(session: Session, experiment_id: str) -> bool:
    """Whether a trial has reported, or has completed or been pruned without a report."""
    query = select(TrialRow.id).where(
        TrialRow.experiment_id == experiment_id,
        TrialRow.last_step.is_not(None) | TrialRow.status.in_([TrialStatus.COMPLETED, TrialStatus.PRUNED]),
    )
    return session.scalar(query.limit(1)) is not None


def any_running_with_reports(session: Session, experiment_id: str, before: int) -> bool:
    """Whether one of the trials with a lower number than `before` runs and has reported."""
    query = select(TrialRow.id).where(
        TrialRow.experiment_id == experiment_id,
        TrialRow.status == TrialStatus.RUNNING,
        TrialRow.number < before,
        TrialRow.last_step.is_not(None),
    )
    return session.scalar(query.limit(1)) is not None


def any_with(session: Session, experiment_id: str, *statuses: TrialStatus) -> bool:
    return any_that(session, experiment_id, TrialRow.status.in_(statuses))


def any_that(session: Session, experiment_id: str, condition: ColumnElement[bool]) -> bool:
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, condition)
    return session.scalar(query.limit(1)) is not None


def trials_with(session: Session, experiment_id: str, *statuses: TrialStatus) -> Sequence[TrialRow]:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.status.in_(statuses))
    return session.scalars(query.order_by(TrialRow.number)).all()


def trials_with_values(session: Session, experiment_id: str, *, with_paused: bool) -> Sequence[TrialRow]:
    """The trials of the search that have reported their first objective, and may be or become the best."""
    statuses = [
        TrialStatus.QUEUED,
        TrialStatus.RUNNING,
        *ELIGIBLE_FOR_BEST,
        *([TrialStatus.PAUSED] if with_paused else []),
    ]
    found = trials_with(session, experiment_id, *statuses)
    return [trial for trial in found if trial.value is not None and trial.confirms is None]


def stop_requested_ids(session: Session) -> set[str]:
    """The running trials of all live experiments that have been asked to stop."""
    live = select(ExperimentRow.id).where(ExperimentRow.status.in_(LIVE_EXPERIMENT))
    query = select(TrialRow.id).where(
        TrialRow.experiment_id.in_(live), TrialRow.status == TrialStatus.RUNNING, TrialRow.stop_cause.is_not(None)
    )
    return set(session.scalars(query))


def asked_to_leave(session: Session, experiment_ids: Collection[str]) -> dict[str, bool]:
    """The running trials that have been asked to stop, and whether each is to be killed."""
    query = select(TrialRow.id, TrialRow.killed).where(
        TrialRow.experiment_id.in_(experiment_ids),
        TrialRow.status == TrialStatus.RUNNING,
        TrialRow.stop_cause.is_not(None),
    )
    return dict(session.execute(query).all())


def experiments_of(session: Session, trial_ids: Collection[str]) -> dict[str, str]:
    """The ids of their experiments, by the ids of the trials that exist."""
    return dict(session.execute(select(TrialRow.id, TrialRow.experiment_id).where(TrialRow.id.in_(trial_ids))).all())


def trial_numbered(session: Session, experiment_id: str, number: int) -> TrialRow:
    return session.scalars(_numbered(experiment_id, number)).one()


def find_trial_numbered(session: Session, experiment_id: str, number: int) -> TrialRow | None:
    return session.scalars(_numbered(experiment_id, number)).one_or_none()


def _numbered(experiment_id: str, number: int) -> Select[TrialRow]:
    return select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.number == number)


def next_queued(session: Session, experiment_id: str) -> TrialRow | None:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.status == TrialStatus.QUEUED)
    return session.scalar(query.order_by(TrialRow.number).limit(1))


def newest_trials(session: Session, experiment_id: str, limit: int) -> Sequence[TrialRow]:
    """The trials that changed last come first; without confirmations."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, is_of_search())
    return session.scalars(query.order_by(TrialRow.changed_at_event.desc()).limit(limit)).all()


def trials_enqueued_with(session: Session, experiment_id: str, key: str) -> Sequence[TrialRow]:
    """The trials that a call with this Idempotency-Key has created, in their order."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.enqueue_key == key)
    return session.scalars(query.order_by(TrialRow.number)).all()


def any_changed_after(session: Session, experiment_id: str, event: int) -> bool:
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.changed_at_event > event)
    return session.scalar(query.limit(1)) is not None


def ids_changed_after(session: Session, experiment_id: str, event: int) -> Sequence[str]:
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.changed_at_event > event)
    return session.scalars(query).all()


def trials_changed_after(session: Session, experiment_id: str, event: int) -> Sequence[TrialRow]:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.changed_at_event > event)
    return session.scalars(query.order_by(TrialRow.number)).all()
