"""Applies the limits in time: expired leases, time limits of trials and experiments.

Each attempt and each experiment is handled in a transaction of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import ColumnElement, update
from sqlalchemy.orm import Session

from service.domain.attempt_holders import describe_holder
from service.domain.statuses import StopCause, TrialStatus
from service.operations.attempts.attempt_end import end_as_lost, revoke_lease
from service.operations.attempts.leases import LeasedAttempt, lock_attempt
from service.operations.attempts.trial_time import OutOfTime, function_began_at, out_of_time
from service.operations.experiments.experiment_end import advance_experiment
from service.operations.experiments.gpu_hours import gpu_hours
from service.operations.transitions import request_stop
from service.runtime.caches.experiment_caches import readable, spec_of
from service.runtime.collected_errors import sum_of_all
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.agents import expired_names
from service.store.attempts import experiments_with_expired_leases, expired_attempts, living_attempts
from service.store.experiments import experiments_limited_in_time, lock_experiment, may_run_trials
from service.store.service_processes import advertised_urls, is_another_there, last_seen, reachable_since, register
from service.store.sql.database import database_now
from service.store.tables import AgentRow, AttemptRow, ExperimentRow, TrialRow
from trainer.wire import Failure, FailureKind

Item = TypeVar("Item")


@dataclass(frozen=True)
class Reachability:
    """Whether holders could reach the service: `since` when without a gap (None: always), and whether they `still` can.

    `still` is called again once the experiment's lock is held, because a delay that kept the service from the lock may
    have kept holders from the service.
    """

    since: datetime | None = None
    still: Callable[[], bool] = lambda: True


def expire_leases(context: Context, reachability: Reachability = Reachability()) -> int:
    """End attempts whose lease has expired; their trials are queued again. Return the number of attempts.

    An attempt of an experiment that only a later version of the service can read is left to that version.
    """
    with context.database.read() as session:
        now = database_now(session)
        experiments = readable(experiments_with_expired_leases(session, now))
        expired = [attempt.id for attempt in expired_attempts(session, [row.id for row in experiments], now)]
    return _for_each(context, expired, partial(_expire_lease, reachability=reachability))


def expire_agent_names(context: Context, reachability: Reachability = Reachability()) -> int:
    """Free the names of agents that are silent, so that another process may use them. Return the number of names."""
    with context.database.read() as session:
        names = expired_names(session, database_now(session))
    return _for_each(context, names, partial(_expire_agent_name, reachability=reachability))


def enforce_time_limits(context: Context, reachability: Reachability = Reachability()) -> int:
    """Apply the limits in time of trials and experiments. Return the number of stop requests."""
    with context.database.read() as session:
        experiments = readable(experiments_limited_in_time(session))
        if not experiments:
            return 0
        now, living = database_now(session), defaultdict[str, list[AttemptRow]](list)
        for attempt in living_attempts(session, [row.id for row in experiments]):
            living[attempt.experiment_id].append(attempt)
    return _for_each(context, experiments, lambda _, row: _enforce(context, row, living[row.id], now, reachability))


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


def _extend_leases(
    session: Session, context: Context, now: datetime, only: ColumnElement[bool] | None = None
) -> datetime:
    until = now + timedelta(seconds=context.settings.lease_seconds)
    short = AttemptRow.ended_at.is_(None) & (AttemptRow.lease_expires_at < until)
    extended = short if only is None else short & only
    session.execute(update(AttemptRow).where(extended).values(lease_expires_at=until))
    session.execute(update(AgentRow).where(AgentRow.name_expires_at < until).values(name_expires_at=until))
    return now


def announce_service(context: Context, since: datetime | None) -> None:
    """Store that this service is there, and `since` when; read the addresses of the others."""
    with context.database.write() as session:
        now, settings = database_now(session), context.settings
        register(session, settings.service_name, settings.advertised_url, since or now, now)
        session.flush()
        context.service_urls[:] = advertised_urls(session)


def _for_each(context: Context, items: Sequence[Item], act: Callable[[Context, Item], int]) -> int:
    """Call `act` for every item, even if it fails for some; then raise all errors as an ExceptionGroup."""
    try:
        count = sum_of_all(partial(act, context, item) for item in items)
    except ExceptionGroup:
        context.notify_all()  # something may have changed
        raise
    if count:
        context.notify_all()
    return count


def _expire_lease(context: Context, attempt_id: int, reachability: Reachability) -> bool:
    with context.database.write() as session:
        leased = lock_attempt(session, session.get_one(AttemptRow, attempt_id))
        expires_at = leased.attempt.lease_expires_at
        if leased.attempt.ended_at is not None or expires_at is None or expires_at >= leased.now:
            return False
        if not reachability.still() or _last_call_possible(context, leased) < expires_at:
            return False
        silence = context.settings.lease_seconds + (leased.now - expires_at).total_seconds()
        message = f"no heartbeat from {describe_holder(leased.attempt.holder)} for {silence:.0f} s"
        end_as_lost(leased, message, context.settings.lease_seconds)
        return True


def _expire_agent_name(context: Context, name: str, reachability: Reachability) -> bool:
    with context.database.write() as session:
        row = session.get(AgentRow, name, with_for_update=True)
        if row is None or row.name_expires_at is None or row.name_expires_at >= database_now(session):
            return False
        if not reachability.still():
            return False
        row.instance = row.name_expires_at = None
        return True


def _enforce(
    context: Context, row: ExperimentRow, living: Sequence[AttemptRow], now: datetime, reachability: Reachability
) -> int:
    spec = spec_of(row)
    overdue = [a.id for a in living if _overdue(spec, a, now, reachability.since) is not None]
    expired = may_run_trials(row) and _has_passed_limit(spec, row, living, now)
    if expired:
        with context.database.write() as session:
            experiment = lock_experiment(session, row.id)
            if experiment is not None:
                advance_experiment(session, experiment, spec_of(experiment), database_now(session))
    return sum(_end_overdue(context, attempt_id, reachability) for attempt_id in overdue) + expired


def _has_passed_limit(
    spec: ExperimentSpec, experiment: ExperimentRow, living: Sequence[AttemptRow], now: datetime
) -> bool:
    """Whether a limit of the whole experiment, in time or in GPU hours, has been passed."""
    limits, elapsed = spec.limits, (now - experiment.created_at).total_seconds()
    if limits.max_seconds is not None and elapsed >= limits.max_seconds:
        return True
    return limits.max_gpu_hours is not None and gpu_hours(experiment, spec, living, now) >= limits.max_gpu_hours


def _overdue(
    spec: ExperimentSpec, attempt: AttemptRow, now: datetime, reachable_since: datetime | None
) -> Failure | OutOfTime | None:
    """Return a failure for an attempt without reports, the limit that one has passed, else None."""
    last_report = max(filter(None, (attempt.started_at, attempt.last_report_at, reachable_since)))
    silent = (now - last_report).total_seconds()
    timeout = spec.failures.report_timeout_seconds
    if timeout is not None and silent >= timeout:
        message = f"no report for {silent:.0f} s (failures.report_timeout_seconds is {timeout:g})"
        return Failure(kind=FailureKind.SILENT, message=message)
    began_at = function_began_at(attempt)
    return None if began_at is None else out_of_time(spec.limits, (now - began_at).total_seconds())


def _last_call_possible(context: Context, leased: LeasedAttempt) -> datetime:
    """The last time at which the service was there that the holder knows, if that may be another one than this."""
    name = leased.attempt.service
    seen_at = None if name == context.service_name else last_seen(leased.session, name, leased.now)
    return seen_at or leased.now


def _reachable_since(session: Session, leased: LeasedAttempt, reachability: Reachability) -> datetime | None:
    """Since when the holder could reach this service, or the only one that it knows."""
    known = [reachability.since, reachable_since(session, leased.attempt.service)]
    return max(filter(None, known), default=None)


def _end_overdue(context: Context, attempt_id: int, reachability: Reachability) -> bool:
    """Ask a trial that is out of time to save and leave; end a silent one, which would not answer the request."""
    with context.database.write() as session:
        leased = lock_attempt(session, session.get_one(AttemptRow, attempt_id))
        if not reachability.still() or leased.attempt.ended_at is not None:
            return False
        now = min(leased.now, _last_call_possible(context, leased))
        overdue = _overdue(leased.spec, leased.attempt, now, _reachable_since(session, leased, reachability))
        if overdue is None or leased.trial.status != TrialStatus.RUNNING:
            return False
        if isinstance(overdue, Failure):
            revoke_lease(leased, overdue)
            return True
        return _stop_in_time(leased.trial, overdue)


def _stop_in_time(trial: TrialRow, overdue: OutOfTime) -> bool:
    """Return whether this is new to the trial's holder."""
    is_new = trial.stop_cause is None or (overdue.is_kill and not trial.killed)
    request_stop(trial, StopCause.MAX_TRIAL_SECONDS, overdue.reason)
    if is_new and overdue.is_kill:
        trial.killed = True
        if trial.stop_cause == StopCause.MAX_TRIAL_SECONDS:
            trial.stop_reason = overdue.reason
    return is_new
