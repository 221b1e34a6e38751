"""Queries on attempts and their leases."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import ARRAY, ColumnElement, Select, any_, bindparam, func, or_, select
from sqlalchemy.orm import Session, defer

from service.domain.statuses import TrialStatus
from service.domain.token_digest import revoked_digest, token_digest
from service.store.experiments import lock_for
from service.store.sql.database import clock_of
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from trainer.wire import Failure, FailureKind, Outcome, Scaling

_IS_LAST = (AttemptRow.trial_id == TrialRow.id) & (AttemptRow.number == TrialRow.attempt_count)


def running_since(session: Session, trial_ids: Collection[str]) -> dict[str, datetime]:
    """When the attempts that have not ended were claimed, by their trials."""
    query = select(AttemptRow.trial_id, AttemptRow.started_at)
    running = query.where(AttemptRow.trial_id.in_(trial_ids), AttemptRow.ended_at.is_(None))
    return dict(session.execute(running).all())


def attempt_by_token(session: Session, token: str) -> AttemptRow | None:
    query = select(AttemptRow).where(AttemptRow.lease_digest == token_digest(token))
    return session.scalar(query.execution_options(populate_existing=True))


def attempt_by_revoked_token(session: Session, token: str) -> AttemptRow | None:
    return session.scalar(select(AttemptRow).where(AttemptRow.lease_digest == revoked_digest(token_digest(token))))


# Columns that are slow to read and that a report does not need. The ORM loads one separately if it is used after all.
_DEFERRED = (
    *(
        defer(column)
        for column in (
            AttemptRow.failure,
            AttemptRow.phases,
            AttemptRow.utilization,
            AttemptRow.queued_at,
            AttemptRow.started_at,
            AttemptRow.last_report_at,
            AttemptRow.lease_salt,
        )
    ),
    *(
        defer(column)
        for column in (TrialRow.params, TrialRow.cost, TrialRow.created_at, TrialRow.queued_at, TrialRow.started_at)
    ),
)

# The statements are built once: building one takes as long as executing it, and every report executes both.


@cache
def _has_digest(dialect: str) -> ColumnElement[bool]:
    """On PostgreSQL an array, so that the prepared statement is the same for any number of digests."""
    if dialect == "sqlite":
        return AttemptRow.lease_digest.in_(bindparam("digests", expanding=True))
    return AttemptRow.lease_digest == any_(bindparam("digests", type_=ARRAY(AttemptRow.lease_digest.type)))


@cache
def _lock_by_digests(dialect: str) -> Select[ExperimentRow]:
    return lock_for(select(AttemptRow.experiment_id).where(_has_digest(dialect)))


@cache
def _with_trials(dialect: str) -> Select[AttemptRow, TrialRow, datetime]:
    query = select(AttemptRow, TrialRow, clock_of(dialect)).join(TrialRow, TrialRow.id == AttemptRow.trial_id)
    query = query.where(_has_digest(dialect)).options(*_DEFERRED)
    return query.execution_options(populate_existing=True)


class LockedAttempt(NamedTuple):
    """An attempt and its trial as they are under the lock, and the database's time then."""

    attempt: AttemptRow
    trial: TrialRow
    now: datetime


def lock_by_digests(
    session: Session, digests: Collection[str]
) -> tuple[Sequence[ExperimentRow], Sequence[LockedAttempt]]:
    """Lock the experiments of the attempts with these lease tokens, as `lock_experiment` does. Then read the attempts.

    The number of queries does not depend on the number of attempts.
    """
    dialect, parameters = session.get_bind().dialect.name, {"digests": list(digests)}
    experiments = session.scalars(_lock_by_digests(dialect), parameters).all()
    return experiments, [LockedAttempt(*row) for row in session.execute(_with_trials(dialect), parameters)]


def attempt_by_request(session: Session, holder: str, request_id: str) -> AttemptRow | None:
    return session.scalar(select(AttemptRow).where(AttemptRow.holder == holder, AttemptRow.request_id == request_id))


def attempts_of(session: Session, trial_id: str) -> Sequence[AttemptRow]:
    return session.scalars(select(AttemptRow).where(AttemptRow.trial_id == trial_id).order_by(AttemptRow.number)).all()


def experiments_with_expired_leases(session: Session, now: datetime) -> Sequence[ExperimentRow]:
    expired = select(AttemptRow.experiment_id).where(_is_expired(now))
    return session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(expired))).all()


def expired_attempts(session: Session, experiment_ids: Collection[str], now: datetime) -> Sequence[AttemptRow]:
    if not experiment_ids:
        return []
    query = select(AttemptRow).where(_is_expired(now), AttemptRow.experiment_id.in_(experiment_ids))
    return session.scalars(query.order_by(AttemptRow.lease_expires_at).limit(1000)).all()


def _is_expired(now: datetime) -> ColumnElement[bool]:
    return AttemptRow.ended_at.is_(None) & (AttemptRow.lease_expires_at < now)


def worker_count(group: "AttemptRow | RunningGroups", scaling: Scaling) -> int:
    """The number of workers. An elastic group has those that it got; until it has told them, those that it needs."""
    return group.world_size or scaling.num_workers


def running_attempts(
    session: Session, experiment_ids: Collection[str] | None = None, holder: str | None = None
) -> Sequence[AttemptRow]:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None))
    if experiment_ids is not None:
        query = query.where(AttemptRow.experiment_id.in_(experiment_ids))
    if holder:
        query = query.where(AttemptRow.holder == holder)
    return session.scalars(query.order_by(AttemptRow.id)).all()


class RunningGroups(NamedTuple):
    """How many attempts of an experiment a holder has, with groups of one size: None for groups of a fixed size."""

    experiment_id: str
    holder: str
    world_size: int | None
    attempts: int


def running_groups(session: Session) -> list[RunningGroups]:
    """The worker groups of all attempts that have not ended. Counted here: to group them, SQLite reads all attempts."""
    query = select(AttemptRow.experiment_id, AttemptRow.holder, AttemptRow.world_size)
    rows = session.execute(query.where(AttemptRow.ended_at.is_(None)))
    running = Counter((experiment_id, holder, size) for experiment_id, holder, size in rows)
    return [RunningGroups(*what, count) for what, count in running.items()]


def ended_groups(session: Session, holder: str, trial_ids: Collection[str]) -> list[RunningGroups]:
    """The worker groups of the last attempts of these trials, of those that have ended."""
    what = AttemptRow.experiment_id, AttemptRow.world_size
    query = select(*what, func.count()).join(TrialRow, _IS_LAST).where(TrialRow.id.in_(trial_ids))
    ended = query.where(AttemptRow.holder == holder, AttemptRow.ended_at.is_not(None)).group_by(*what)
    return [RunningGroups(id_, holder, size, count) for id_, size, count in session.execute(ended)]


def last_served(session: Session, experiment_ids: Collection[str]) -> dict[str, datetime]:
    """When the newest attempt of each experiment ended or, if it runs, started; of those that have had one.

    For each experiment, one entry of the index by experiment and id is read: the last one whose experiment is at most
    this one (`<=`). If the experiment has had no attempt, that entry is of another one, and the last condition leaves
    it out. With `==`, PostgreSQL may read the attempts of all experiments from the newest on, until one is of this one.
    """
    newest = (
        select(AttemptRow.id)
        .where(AttemptRow.experiment_id <= ExperimentRow.id)
        .order_by(AttemptRow.experiment_id.desc(), AttemptRow.id.desc())
        .limit(1)
        .correlate(ExperimentRow)
        .scalar_subquery()
    )
    found = AttemptRow.id.in_(select(newest).where(ExperimentRow.id.in_(experiment_ids)))
    query = select(AttemptRow.experiment_id, func.coalesce(AttemptRow.ended_at, AttemptRow.started_at))
    return dict(session.execute(query.where(found, AttemptRow.experiment_id.in_(experiment_ids))).all())


def holders_of(session: Session, experiment_id: str) -> Sequence[str]:
    """The names of all that have held attempts of the experiment."""
    query = select(AttemptRow.holder).where(AttemptRow.experiment_id == experiment_id).distinct()
    return session.scalars(query.order_by(AttemptRow.holder)).all()


def resumed_elsewhere(session: Session, trial: TrialRow) -> Sequence[str]:
    """The checkpoints that running attempts of the experiment's other trials have resumed from."""
    query = select(AttemptRow.resume_uri).where(
        AttemptRow.experiment_id == trial.experiment_id,
        AttemptRow.trial_id != trial.id,
        AttemptRow.ended_at.is_(None),
        AttemptRow.resume_uri.is_not(None),
    )
    return [uri for uri in session.scalars(query) if uri is not None]


def first_failures(
    session: Session, experiment_id: str, kinds: Collection[FailureKind], limit: int
) -> dict[int, Failure]:
    """The failures of the first `limit` trials that have failed in one of these ways, by number; without tracebacks.

    Of lost trials, only those count whose workers never ran: others say nothing of the experiment's code.
    """
    began = AttemptRow.failure["began"].as_boolean()
    query = (
        select(TrialRow.number, TrialRow.failure_kind, TrialRow.reason, began)
        .outerjoin(AttemptRow, _IS_LAST)
        .where(TrialRow.experiment_id == experiment_id, TrialRow.status == TrialStatus.FAILED)
        .where(TrialRow.failure_kind.in_(kinds))
        .where(or_(TrialRow.failure_kind != FailureKind.LOST, began.is_(False)))
    )
    return {
        number: Failure(kind=FailureKind(kind), message=reason or "", began=began is not False)
        for number, kind, reason, began in session.execute(query.order_by(TrialRow.number).limit(limit))
    }


def first_tracebacks(session: Session, experiment_ids: Collection[str]) -> dict[str, str | None]:
    """The traceback of the first failed trial's last attempt, by experiment."""
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


class FailedAttempt(NamedTuple):
    trial_number: int
    number: int
    ended_at: datetime


def failed_attempts(session: Session, experiment_id: str) -> list[FailedAttempt]:
    """The attempts of the experiment that ended as failed, in the order in which they began."""
    query = (
        select(TrialRow.number, AttemptRow.number, AttemptRow.ended_at)
        .join(TrialRow, TrialRow.id == AttemptRow.trial_id)
        .where(AttemptRow.experiment_id == experiment_id, AttemptRow.outcome == Outcome.FAILED)
        .order_by(AttemptRow.id)
    )
    rows = session.execute(query)
    return [FailedAttempt(trial, number, ended_at) for trial, number, ended_at in rows if ended_at is not None]
