"""Queries on attempts and their leases."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain.failures import FAILURES_TO_GIVE_UP
from service.domain.statuses import TrialStatus
from service.store.tables import AttemptRow, TrialRow
from trainer.wire import FailureKind


def attempt_by_token(session: Session, token: str) -> AttemptRow | None:
    query = select(AttemptRow).where(AttemptRow.lease_token == token)
    return session.scalar(query.execution_options(populate_existing=True))


def attempt_by_request(session: Session, holder: str, request_id: str) -> AttemptRow | None:
    return session.scalar(select(AttemptRow).where(AttemptRow.holder == holder, AttemptRow.request_id == request_id))


def attempts_of(session: Session, trial_id: str) -> Sequence[AttemptRow]:
    return session.scalars(select(AttemptRow).where(AttemptRow.trial_id == trial_id).order_by(AttemptRow.number)).all()


def expired_attempts(session: Session, now: datetime) -> Sequence[AttemptRow]:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None), AttemptRow.lease_expires_at < now)
    return session.scalars(query.order_by(AttemptRow.lease_expires_at).limit(1000)).all()


def living_attempts(
    session: Session, experiment_id: str | None = None, holder: str | None = None
) -> Sequence[AttemptRow]:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None))
    if experiment_id:
        query = query.where(AttemptRow.experiment_id == experiment_id)
    if holder:
        query = query.where(AttemptRow.holder == holder)
    return session.scalars(query.order_by(AttemptRow.id)).all()


def reported_count(session: Session, experiment_id: str) -> int:
    """How many trials have reported at least once, or ended well without."""
    query = select(func.count()).where(
        TrialRow.experiment_id == experiment_id,
        TrialRow.last_step.is_not(None) | TrialRow.status.in_([TrialStatus.COMPLETED, TrialStatus.PRUNED]),
    )
    return session.scalar(query) or 0


def alike_unstartable_count(session: Session, experiment_id: str) -> tuple[int, str | None]:
    """How many of the first failed trials could not start for one same reason, and that reason."""
    query = (
        select(TrialRow.failure_kind, TrialRow.reason)
        .where(TrialRow.experiment_id == experiment_id, TrialRow.status == TrialStatus.FAILED)
        .order_by(TrialRow.number)
        .limit(FAILURES_TO_GIVE_UP)
    )
    failures = session.execute(query).all()
    alike = [reason for kind, reason in failures if kind == FailureKind.CANNOT_START and reason == failures[0][1]]
    return len(alike), alike[0] if alike else None
