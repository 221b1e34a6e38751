"""Finds the experiments whose charts in MLflow are out of date, and reads what the charts show."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, MirrorRow, ReportRow, TrialRow
from service.store.trials.measured_trial import MEASUREMENTS, TrialMeasurements
from service.store.trials.trials import is_of_search

SHOWN = (TrialStatus.COMPLETED, TrialStatus.PRUNED, TrialStatus.STOPPED)
MOST_REPORTS = 100_000


def outdated_experiments(session: Session, refresh: timedelta) -> Sequence[str]:
    """Experiments in MLflow of which a trial has ended since the last charts, the oldest charts first.

    Those with an error are drawn, too, which clears it: a service before schema 0034 draws without doing so. A running
    experiment is due again after `refresh`, an ended one immediately.
    """
    since = func.coalesce(MirrorRow.pictured_at, ExperimentRow.created_at)
    ended_since = select(TrialRow.id).where(
        TrialRow.experiment_id == MirrorRow.experiment_id,
        TrialRow.changed_at_event > MirrorRow.pictured_event,
        TrialRow.status.in_(SHOWN),
    )
    query = (
        select(MirrorRow.experiment_id)
        .join(ExperimentRow, ExperimentRow.id == MirrorRow.experiment_id)
        .where(MirrorRow.parent_run_id.is_not(None))
        .where(or_(ended_since.exists(), MirrorRow.pictures_error.is_not(None)))
        .where(or_(since <= database_now(session) - refresh, ExperimentRow.ended_at.is_not(None)))
    )
    return session.scalars(query.order_by(since, MirrorRow.experiment_id)).all()


def note_drawn(session: Session, experiment_id: str, event: int, parent_run_id: str) -> None:
    """Record that the charts of this run show all events up to `event`, unless the mirror has another run by now."""
    mirror = session.get(MirrorRow, experiment_id)
    if mirror is not None and mirror.parent_run_id == parent_run_id:
        mirror.pictured_event, mirror.pictured_at, mirror.pictures_error = event, database_now(session), None


def drawn_at(session: Session, experiment_id: str) -> datetime | None:
    """When the charts in MLflow were drawn; None if they never were."""
    return session.scalar(select(MirrorRow.pictured_at).where(MirrorRow.experiment_id == experiment_id))


def note_failed(session: Session, experiment_id: str, error: str, drawn_at: datetime | None) -> None:
    """Record why the charts in MLflow are missing or old, unless another service has drawn them since `drawn_at`."""
    is_as_before = MirrorRow.pictured_at.is_not_distinct_from(drawn_at)
    failed = update(MirrorRow).where(MirrorRow.experiment_id == experiment_id, is_as_before)
    session.execute(failed.values(pictures_error=error))


def clear_errors(session: Session) -> None:
    """Clear the errors that a service with charts has left; this one draws none."""
    session.execute(update(MirrorRow).where(MirrorRow.pictures_error.is_not(None)).values(pictures_error=None))


def shown_trials(session: Session, experiment_id: str, others: ColumnElement[bool]) -> list[TrialMeasurements]:
    """Trials of the search with one of the statuses in `SHOWN`, and those that meet the condition `others`."""
    shown = or_(TrialRow.status.in_(SHOWN), others)
    query = select(*MEASUREMENTS).where(TrialRow.experiment_id == experiment_id, is_of_search(), shown)
    return [TrialMeasurements(*row) for row in session.execute(query.order_by(TrialRow.number))]


def curves_of(session: Session, trial_ids: Sequence[str]) -> dict[str, dict[int, float]]:
    """The curves, by trial and step. Beyond `MOST_REPORTS` the last steps are left out."""
    query = select(ReportRow.trial_id, ReportRow.step, ReportRow.value).where(
        ReportRow.trial_id.in_(trial_ids), ReportRow.value.is_not(None)
    )
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for trial_id, step, value in session.execute(query.order_by(ReportRow.step).limit(MOST_REPORTS)):
        if value is not None:
            curves[trial_id][step] = value
    return curves
