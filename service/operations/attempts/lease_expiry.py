"""Ends attempts whose lease has expired, frees the names of silent agents, and corrects leases after an absence.

Each attempt and each name is handled in a transaction of its own.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, update
from sqlalchemy.orm import Session

from service.domain.attempt_holders import describe_holder
from service.operations.attempts.attempt_end import end_as_lost
from service.operations.attempts.leases import LEASE_SLACK, lock_attempt
from service.operations.attempts.reachability import ALWAYS, Reachability, last_call_possible
from service.operations.early_stopping.recorded_milestones import catching_up
from service.runtime.caches.experiment_caches import readable
from service.runtime.collected_errors import change_all, skip_locked
from service.runtime.context import Context
from service.store.agents import expired_names
from service.store.attempts import experiments_with_expired_leases, expired_attempts
from service.store.service_processes import is_another_there
from service.store.sql.database import BRIEF_LOCK_SECONDS, LOCK_SECONDS, database_now, wait_little_for_locks
from service.store.tables import AgentRow, AttemptRow


def expire_leases(context: Context, reachability: Reachability = ALWAYS) -> int:
    """End attempts whose lease has expired; their trials are queued again. Return the number of attempts.

    An attempt of an experiment that only a later version of the service can read is left to that version.
    """
    with context.database.read() as session:
        now = database_now(session)
        experiments = readable(experiments_with_expired_leases(session, now))
        expired = expired_attempts(session, [row.id for row in experiments], now)
    expire = partial(_expire_lease, reachability=reachability, was_locked=frozenset(context.locked_experiments))
    context.locked_experiments.clear()
    unlocked = skip_locked(expire, lambda attempt: attempt.experiment_id, context.locked_experiments)
    return change_all(context, expired, unlocked)


def expire_agent_names(context: Context, reachability: Reachability = ALWAYS) -> int:
    """Free the names of agents that are silent, so that another process may use them. Return the number of names."""
    with context.database.read() as session:
        names = expired_names(session, database_now(session))
    expire = skip_locked(partial(_expire_agent_name, reachability=reachability), lambda name: f"agent {name}", set())
    return change_all(context, names, expire)


def extend_all_leases(context: Context) -> datetime:
    """Extend all leases and agent names by a whole lease after holders could not reach the service. Return the time.

    One statement for each table, so an attempt that ends concurrently keeps its end. A name that is free already stays
    free.
    """
    with context.database.write() as session:
        return _extend_leases(session, context, database_now(session))


def extend_leases_after_absence(context: Context, heartbeat_slack: timedelta) -> datetime:
    """As `extend_all_leases`, but if another service was there `heartbeat_slack` ago or later, as few as necessary.

    Its holders could reach that one, unless they know only this service. So one that restarts again and again does not
    keep lost attempts from their end. Agents are not known to have another address, so that their names are extended.
    """
    with context.database.write() as session:
        now, name = database_now(session), context.service_name
        is_alone = name is None or not is_another_there(session, name, now - heartbeat_slack, now)
        return _extend_leases(session, context, now, None if is_alone else AttemptRow.service == name)


def shorten_all_leases(context: Context) -> datetime:
    """Let no lease and no agent name last longer than a new one, after the database's clock was set back.

    Return the time.
    """
    with context.database.write() as session:
        now, seconds = database_now(session), context.settings.lease_seconds
        until, latest = now + timedelta(seconds=seconds), now + timedelta(seconds=seconds * (1 + LEASE_SLACK))
        long = AttemptRow.ended_at.is_(None) & (AttemptRow.lease_expires_at > latest)
        session.execute(update(AttemptRow).where(long).values(lease_expires_at=until))
        session.execute(update(AgentRow).where(AgentRow.name_expires_at > latest).values(name_expires_at=until))
        return now


def _extend_leases(
    session: Session, context: Context, now: datetime, only: ColumnElement[bool] | None = None
) -> datetime:
    until = now + timedelta(seconds=context.settings.lease_seconds)
    short = AttemptRow.ended_at.is_(None) & (AttemptRow.lease_expires_at < until)
    extended = short if only is None else short & only
    session.execute(update(AttemptRow).where(extended).values(lease_expires_at=until))
    session.execute(update(AgentRow).where(AgentRow.name_expires_at < until).values(name_expires_at=until))
    return now


@catching_up
def _expire_lease(
    context: Context, expired: AttemptRow, reachability: Reachability, was_locked: Collection[str]
) -> bool:
    with context.database.write() as session:
        has_passed_over = expired.experiment_id in was_locked
        wait_little_for_locks(session, LOCK_SECONDS if has_passed_over else BRIEF_LOCK_SECONDS)
        leased = lock_attempt(session, session.get_one(AttemptRow, expired.id))
        expires_at = leased.attempt.lease_expires_at
        if leased.attempt.ended_at is not None or expires_at is None or expires_at >= leased.now:
            return False
        if has_passed_over:  # at the last pass, so its holder's calls may have been refused
            leased.extend_lease(context.settings.lease_seconds)
            return False
        if not reachability.still(leased.now) or last_call_possible(context, leased) < expires_at:
            return False
        silence = context.settings.lease_seconds + (leased.now - expires_at).total_seconds()
        message = f"no heartbeat from {describe_holder(leased.attempt.holder)} for {silence:.0f} s"
        end_as_lost(leased, message, context.settings.lease_seconds)
        return True


def _expire_agent_name(context: Context, name: str, reachability: Reachability) -> bool:
    with context.database.write() as session:
        wait_little_for_locks(session)
        row = session.get(AgentRow, name, with_for_update=True)
        now = database_now(session)
        if row is None or row.name_expires_at is None or row.name_expires_at >= now:
            return False
        if not reachability.still(now):
            return False
        row.instance = row.name_expires_at = None
        return True
