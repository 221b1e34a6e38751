"""Queries on attempts and their leases."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from itertools import takewhile

from sqlalchemy import ARRAY, ColumnElement, Select, any_, bindparam, select
from sqlalchemy.orm import Session, defer

from service.domain.statuses import TrialStatus
from service.store.experiments import lock_for
from service.store.sql.database import clock_of
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from trainer.wire import Failure, FailureKind

_IS_LAST = (AttemptRow.trial_id == TrialRow.id) & (AttemptRow.number == TrialRow.attempt_count)


def attempt_by_token(session: Session, token: str) -> AttemptRow | None:
    query = select(AttemptRow).where(AttemptRow.lease_token == token)
    return session.scalar(query.execution_options(populate_existing=True))


# Columns that are slow to read and that a report does not need. The ORM loads one separately if it is used after all.
_DEFERRED = (
    *(defer(column) for column in (AttemptRow.failure, AttemptRow.started_at, AttemptRow.last_report_at)),
    *(defer(column) for column in (TrialRow.params, TrialRow.created_at, TrialRow.started_at)),
)

# The statements are built once: building one takes as long as executing it, and every report executes both.


@cache
def _has_token(dialect: str) -> ColumnElement[bool]:
    """On PostgreSQL an array, so that the prepared statement is the same for any number of tokens."""
    if dialect == "sqlite":
        return AttemptRow.lease_token.in_(bindparam("tokens", expanding=True))
    return AttemptRow.lease_token == any_(bindparam("tokens", type_=ARRAY(AttemptRow.lease_token.type)))


@cache
def _lock_by_tokens(dialect: str) -> Select[ExperimentRow]:
    return lock_for(select(AttemptRow.experiment_id).where(_has_token(dialect)))


@cache
def _with_trials(dialect: str, clock: ColumnElement[datetime]) -> Select[AttemptRow, TrialRow, datetime]:
    query = select(AttemptRow, TrialRow, clock).join(TrialRow, TrialRow.id == AttemptRow.trial_id)
    query = query.where(_has_token(dialect)).options(*_DEFERRED)
    return query.execution_options(populate_existing=True)


def lock_experiments_of(session: Session, tokens: Collection[str]) -> Sequence[ExperimentRow]:
    """Lock the experiments of the attempts with these tokens, as `lock_experiment` does."""
    return session.scalars(_lock_by_tokens(session.get_bind().dialect.name), {"tokens": list(tokens)}).all()


def attempts_by_tokens(session: Session, tokens: Collection[str]) -> Sequence[tuple[AttemptRow, TrialRow, datetime]]:
    """Return the attempts with their trials, read anew, and the database's time of the read."""
    query = _with_trials(session.get_bind().dialect.name, clock_of(session))
    return session.execute(query, {"tokens": list(tokens)}).all()


def attempt_by_request(session: Session, holder: str, request_id: str) -> AttemptRow | None:
    return session.scalar(select(AttemptRow).where(AttemptRow.holder == holder, AttemptRow.request_id == request_id))


def attempts_of(session: Session, trial_id: str) -> Sequence[AttemptRow]:
    return session.scalars(select(AttemptRow).where(AttemptRow.trial_id == trial_id).order_by(AttemptRow.number)).all()


def expired_attempts(session: Session, now: datetime) -> Sequence[AttemptRow]:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None), AttemptRow.lease_expires_at < now)
    return session.scalars(query.order_by(AttemptRow.lease_expires_at).limit(1000)).all()


def living_attempts(
    session: Session, experiment_ids: Collection[str] | None = None, holder: str | None = None
) -> Sequence[AttemptRow]:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None))
    if experiment_ids is not None:
        query = query.where(AttemptRow.experiment_id.in_(experiment_ids))
    if holder:
        query = query.where(AttemptRow.holder == holder)
    return session.scalars(query.order_by(AttemptRow.id)).all()


def resumed_elsewhere(session: Session, trial: TrialRow) -> Sequence[str]:
    """The checkpoints that running attempts of the experiment's other trials have resumed from."""
    query = select(AttemptRow.resume_uri).where(
        AttemptRow.experiment_id == trial.experiment_id,
        AttemptRow.trial_id != trial.id,
        AttemptRow.ended_at.is_(None),
        AttemptRow.resume_uri.is_not(None),
    )
    return [uri for uri in session.scalars(query) if uri is not None]


def first_failures(session: Session, experiment_id: str, limit: int) -> list[Failure]:
    """The failures of the first `limit` trials, up to the first trial that has not failed. Without tracebacks."""
    query = (
        select(TrialRow.failure_kind, TrialRow.reason, AttemptRow.failure["began"].as_boolean())
        .outerjoin(AttemptRow, _IS_LAST)
        .where(TrialRow.experiment_id == experiment_id)
    )
    found = session.execute(query.order_by(TrialRow.number).limit(limit)).all()
    failed = takewhile(lambda row: row[0] is not None, found)
    return [
        Failure(kind=FailureKind(kind), message=reason or "", began=began is not False)
        for kind, reason, began in failed
    ]


def first_tracebacks(session: Session, experiment_ids: Collection[str]) -> dict[str, str | None]:
    """By experiment: the traceback of the first failed trial's last attempt."""
    first = (
        select(TrialRow.id)
        .where(TrialRow.experiment_id == ExperimentRow.id, TrialRow.status == TrialStatus.FAILED)
        .order_by(TrialRow.number)
        .limit(1)
        .correlate(ExperimentRow)
        .scalar_subquery()
    )
    firsts = select(first).where(ExperimentRow.id.in_(experiment_ids))
    query = select(TrialRow.experiment_id, AttemptRow.failure).join(AttemptRow, _IS_LAST).where(TrialRow.id.in_(firsts))
    return {key: failure.get("traceback") for key, failure in session.execute(query) if failure}
