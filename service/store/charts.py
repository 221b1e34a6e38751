"""Which experiments need new pictures in MLflow, and what their trials have to show."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, MirrorRow, ReportRow, TrialRow

SHOWN = (TrialStatus.COMPLETED, TrialStatus.PRUNED, TrialStatus.STOPPED)
MOST_REPORTS = 100_000


def due(session: Session, refresh: timedelta) -> Sequence[str]:
    """Those in MLflow of which a trial has ended since they were pictured, once that is `refresh` ago or they are over.

    The longest neglected first.
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
        .where(MirrorRow.parent_run_id.is_not(None), ended_since.exists())
        .where(or_(since <= database_now(session) - refresh, ExperimentRow.ended_at.is_not(None)))
    )
    return session.scalars(query.order_by(since, MirrorRow.experiment_id)).all()


def note(session: Session, experiment_id: str, event: int) -> None:
    """MLflow has pictures of all up to `event`."""
    mirror = session.get(MirrorRow, experiment_id)
    if mirror is not None:
        mirror.pictured_event, mirror.pictured_at = event, database_now(session)


def shown_trials(session: Session, experiment_id: str) -> Sequence[TrialRow]:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.status.in_(SHOWN))
    return session.scalars(query.order_by(TrialRow.number)).all()


def curves_of(session: Session, trial_ids: Sequence[str]) -> dict[str, dict[int, float]]:
    """By trial and step; of very long curves what comes first."""
    query = select(ReportRow.trial_id, ReportRow.step, ReportRow.value).where(
        ReportRow.trial_id.in_(trial_ids), ReportRow.value.is_not(None)
    )
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for trial_id, step, value in session.execute(query.order_by(ReportRow.step).limit(MOST_REPORTS)):
        if value is not None:
            curves[trial_id][step] = value
    return curves
