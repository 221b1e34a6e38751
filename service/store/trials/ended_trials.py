"""How trials ended, and queries on them in that order, which use an index: their cost does not depend on the count."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from search.problem import Direction
from service.domain.no_improvement import EndedTrial
from service.domain.statuses import CAUSES_WITH_RESULT, ELIGIBLE_FOR_BEST, LIVE_TRIAL, StopCause, TrialStatus
from service.store.tables import TrialRow
from service.store.trials.best_first import best_first
from service.store.trials.eligible_for_best import eligible_for_best, is_eligible_for_best
from service.store.trials.measured_trial import MeasuredTrial
from service.store.trials.trials import is_of_search

# As negations, so that no database chooses the index by status, which does not have the order.
_ENDED = and_(is_of_search(), TrialRow.status.not_in((*LIVE_TRIAL, TrialStatus.FAILED)))
_HAS_ELIGIBLE_STATUS = TrialRow.status.not_in([status for status in TrialStatus if status not in ELIGIBLE_FOR_BEST])

# With a text in place of null, so that the negation holds for trials without a cause, too.
_STOPPED_BY_EXPERIMENT_END = and_(
    TrialRow.status == TrialStatus.STOPPED, func.coalesce(TrialRow.stop_cause, "") == StopCause.EXPERIMENT_ENDED
)


def ran_to_completion(trial: MeasuredTrial) -> bool:
    """Whether the trial's values are its result: it ended by itself, or by a limit in time after a report."""
    is_own_end = trial.stop_cause in CAUSES_WITH_RESULT and trial.value is not None
    return trial.status == TrialStatus.COMPLETED or (trial.status == TrialStatus.STOPPED and is_own_end)


def was_stopped_by_experiment_end(trial: TrialRow) -> bool:
    """Whether the end of its experiment has stopped the trial."""
    return trial.status == TrialStatus.STOPPED and trial.stop_cause == StopCause.EXPERIMENT_ENDED


def stopped_by_experiment_end(session: Session, experiment_id: str) -> Sequence[TrialRow]:
    """The trials of the search of which `was_stopped_by_experiment_end` is true, by number."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, _STOPPED_BY_EXPERIMENT_END, is_of_search())
    return session.scalars(query.order_by(TrialRow.number)).all()


def have_run_to_completion() -> ColumnElement[bool]:
    """The condition for trials of which `ran_to_completion` is true."""
    is_own_end = or_(*(TrialRow.stop_cause == cause for cause in sorted(CAUSES_WITH_RESULT, key=str)))
    has_result = and_(TrialRow.status == TrialStatus.STOPPED, is_own_end, TrialRow.value.is_not(None))
    return or_(TrialRow.status == TrialStatus.COMPLETED, has_result)


def newest_ends(
    session: Session, experiment_id: str, count: int, *, constrained: bool, with_stopped: bool
) -> tuple[Sequence[EndedTrial], int] | None:
    """The last `count` trials that ended with a value, and the event of the first of them; None if there are fewer.

    `with_stopped`: also those that the end of the experiment has stopped.
    """
    columns = (TrialRow.number, TrialRow.value, TrialRow.status, TrialRow.violation, TrialRow.changed_at_event)
    query = select(*columns).where(TrialRow.experiment_id == experiment_id, _ENDED, TrialRow.value.is_not(None))
    if not with_stopped:
        query = query.where(~_STOPPED_BY_EXPERIMENT_END)
    rows = session.execute(query.order_by(TrialRow.changed_at_event.desc()).limit(count)).all()
    if len(rows) < count:
        return None
    ends = [
        EndedTrial(row.number, row.value, is_eligible_for_best(row.status, row.violation, constrained=constrained))
        for row in rows
        if row.value is not None
    ]
    return ends, rows[-1].changed_at_event


def best_end_before(
    session: Session, experiment_id: str, event: int, direction: Direction, *, constrained: bool
) -> EndedTrial | None:
    """The best of the eligible trials that ended before the event."""
    wanted = [
        TrialRow.experiment_id == experiment_id,
        *eligible_for_best(constrained=constrained, by_status=_HAS_ELIGIBLE_STATUS),
        TrialRow.changed_at_event + 0 < event,  # `+ 0` keeps the database from using another index than that by value
    ]
    query = select(TrialRow.number, TrialRow.value).where(*wanted).order_by(*best_first(direction)).limit(1)
    found = session.execute(query).first()
    return EndedTrial(found.number, found.value) if found and found.value is not None else None
