"""Counts over all experiments, for metrics."""

from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from service.domain.statuses import LIVE_EXPERIMENT, ExperimentStatus, TrialStatus
from service.store.agents import are_connected
from service.store.tables import AttemptRow, ExperimentRow, TrialRow


def experiments(session: Session) -> dict[str, float]:
    """The number of experiments in each status, including statuses without experiments."""
    return _by(ExperimentStatus, session, select(ExperimentRow.status, func.count()).group_by(ExperimentRow.status))


def live_trials(session: Session) -> dict[str, float]:
    """The trials of live experiments by status, including statuses without trials."""
    live = select(ExperimentRow.id).where(ExperimentRow.status.in_(LIVE_EXPERIMENT))
    query = select(TrialRow.status, func.count()).where(TrialRow.experiment_id.in_(live)).group_by(TrialRow.status)
    return _by(TrialStatus, session, query)


def running_attempts(session: Session) -> int:
    return session.scalar(select(func.count()).where(AttemptRow.ended_at.is_(None))) or 0


def checkpoint_bytes(session: Session) -> int:
    """The size of all checkpoints that have not been removed, as far as it is known."""
    return int(session.scalar(select(func.sum(ExperimentRow.checkpoint_bytes))) or 0)


def connected_agents(session: Session, now: datetime) -> int:
    return session.scalar(select(func.count()).where(are_connected(now))) or 0


def _by(
    statuses: type[ExperimentStatus] | type[TrialStatus], session: Session, query: Select[str, int]
) -> dict[str, float]:
    found = dict(session.execute(query).all())
    return {status.value: float(found.get(status.value, 0)) for status in statuses}
