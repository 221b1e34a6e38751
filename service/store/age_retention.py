"""Queries on what is old."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import ExperimentRow, MirrorRow, TrialRow


def ends_of_experiments(session: Session, trial_ids: Collection[str]) -> dict[str, datetime | None]:
    """When the experiment of each of these trials ended; trials that do not exist are missing."""
    query = select(TrialRow.id, ExperimentRow.ended_at).join(ExperimentRow, ExperimentRow.id == TrialRow.experiment_id)
    return dict(session.execute(query.where(TrialRow.id.in_(trial_ids))).all())


def experiments_that_ended_before(session: Session, time: datetime, *, only_mirrored: bool) -> Sequence[str]:
    """Their ids; `only_mirrored`: without those that have events that are not in MLflow yet."""
    query = select(ExperimentRow.id).where(ExperimentRow.ended_at < time)
    if only_mirrored:
        query = query.join(MirrorRow, MirrorRow.experiment_id == ExperimentRow.id).where(
            MirrorRow.cursor >= ExperimentRow.event_count
        )
    return session.scalars(query.order_by(ExperimentRow.ended_at)).all()
