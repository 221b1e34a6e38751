"""Queries on running trials that have reported."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.tables import ReportRow, TrialRow


def running_with_reports(session: Session, experiment_ids: Sequence[str]) -> dict[str, list[TrialRow]]:
    """The running trials of each experiment that have reported, in the order of their numbers."""
    query = select(TrialRow).where(
        TrialRow.experiment_id.in_(experiment_ids),
        TrialRow.status == TrialStatus.RUNNING,
        TrialRow.last_step.is_not(None),
    )
    found: dict[str, list[TrialRow]] = {}
    for trial in session.scalars(query.order_by(TrialRow.number)):
        found.setdefault(trial.experiment_id, []).append(trial)
    return found


def newest_metric_names(session: Session, trials: Sequence[TrialRow]) -> dict[str, tuple[int, list[str]]]:
    """The number of each trial and the names of the metrics in its newest report, by experiment.

    `trials`: at most one of each experiment.
    """
    query = (
        select(TrialRow.experiment_id, TrialRow.number, ReportRow.metrics)
        .join(ReportRow, (ReportRow.trial_id == TrialRow.id) & (ReportRow.step == TrialRow.last_step))
        .where(TrialRow.id.in_([trial.id for trial in trials]))
    )
    return {experiment: (number, sorted(metrics)) for experiment, number, metrics in session.execute(query)}
