"""What time does: leases run out, limits are reached. Each attempt and experiment in a transaction of its own."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import update

from service.domain.statuses import StopCause, TrialStatus
from service.operations.attempts.finish import take_away
from service.operations.attempts.leases import locked
from service.operations.attempts.loss import lose
from service.operations.experiments.termination import advance_experiment, may_run_trials
from service.operations.trials.stop_request import request_stop
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec
from service.store.agents import expired_names
from service.store.attempts import expired_attempts, living_attempts
from service.store.experiments import experiments_limited_in_time, lock_experiment
from service.store.sql.database import database_now
from service.store.tables import AgentRow, AttemptRow, ExperimentRow
from trainer.wire import Failure, FailureKind

Item = TypeVar("Item")


@dataclass(frozen=True)
class Hearing:
    """Whether holders could be heard: `since` when (None: always), and whether they can `still`.

    It is asked again once the experiment's lock is held, for whatever kept that from us may have kept holders, too.
    """

    since: datetime | None = None
    still: Callable[[], bool] = lambda: True


def rescue_lost_attempts(context: Context, hearing: Hearing = Hearing()) -> int:
    """Ends attempts whose holder fell silent; their trials go back to the queue. Returns how many."""
    with context.database.read() as session:
        expired = [attempt.id for attempt in expired_attempts(session, database_now(session))]
    return _each(context, expired, partial(_rescue, hearing=hearing))


def release_silent_names(context: Context, hearing: Hearing = Hearing()) -> int:
    """Frees the names of agents that fell silent: another process may work under them. Returns how many."""
    with context.database.read() as session:
        names = expired_names(session, database_now(session))
    return _each(context, names, partial(_release, hearing=hearing))


def enforce_time_limits(context: Context, hearing: Hearing = Hearing()) -> int:
    """Applies max_seconds, max_trial_seconds and report_timeout_seconds. Returns how many trials it told to stop."""
    with context.database.read() as session:
        experiments = experiments_limited_in_time(session)
        if not experiments:
            return 0
        now, living = database_now(session), defaultdict[str, list[AttemptRow]](list)
        for attempt in living_attempts(session, [row.id for row in experiments]):
            living[attempt.experiment_id].append(attempt)
    return _each(context, experiments, lambda _, row: _enforce(context, row, living[row.id], now, hearing))


def extend_all_leases(context: Context) -> datetime:
    """For a service that was away or deaf: holders could not reach it, and get a whole lease to do so. Returns now.

    One statement, so that an attempt which ends meanwhile keeps its end. Agents keep their names in the same way; one
    that has lost its name has none to be extended.
    """
    with context.database.write() as session:
        now = database_now(session)
        until = now + timedelta(seconds=context.settings.lease_seconds)
        short = AttemptRow.ended_at.is_(None) & (AttemptRow.lease_expires_at < until)
        session.execute(update(AttemptRow).where(short).values(lease_expires_at=until))
        session.execute(update(AgentRow).where(AgentRow.name_expires_at < until).values(name_expires_at=until))
    return now


def _each(context: Context, items: Sequence[Item], act: Callable[[Context, Item], int]) -> int:
    """Acts on every item, whatever befalls one of them; raises what went wrong when all have had their turn."""
    count, errors = 0, []
    for item in items:
        try:
            count += act(context, item)
        except Exception as error:  # noqa: BLE001 - raised below, after the others have had their turn
            errors.append(error)
    if count:
        context.ring_all()
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(items)} failed", errors)
    return count


def _rescue(context: Context, attempt_id: int, hearing: Hearing) -> bool:
    with context.database.write() as session:
        held = locked(session, session.get_one(AttemptRow, attempt_id))
        expires_at = held.attempt.lease_expires_at
        if held.attempt.ended_at is not None or expires_at is None or expires_at >= held.now:
            return False
        if not hearing.still():
            return False
        silence = context.settings.lease_seconds + (held.now - expires_at).total_seconds()
        message = f"its holder {held.attempt.holder!r} was silent for {silence:.0f} s"
        lose(held, message, context.settings.lease_seconds)
        return True


def _release(context: Context, name: str, hearing: Hearing) -> bool:
    with context.database.write() as session:
        row = session.get(AgentRow, name, with_for_update=True)
        if row is None or row.name_expires_at is None or row.name_expires_at >= database_now(session):
            return False
        if not hearing.still():
            return False
        row.instance = row.name_expires_at = None
        return True


def _enforce(
    context: Context, row: ExperimentRow, living: Sequence[AttemptRow], now: datetime, hearing: Hearing
) -> int:
    spec = spec_of(row)
    overdue = [a.id for a in living if _overdue(spec, a, now, hearing.since) is not None]
    expired = _out_of_time(spec, row, now)
    if expired:
        with context.database.write() as session:
            experiment = lock_experiment(session, row.id)
            if experiment is not None:
                advance_experiment(session, experiment, spec_of(experiment), database_now(session))
    return sum(_end_overdue(context, attempt_id, hearing) for attempt_id in overdue) + expired


def _out_of_time(spec: ExperimentSpec, experiment: ExperimentRow, now: datetime) -> bool:
    limit = spec.limits.max_seconds
    elapsed = (now - experiment.created_at).total_seconds()
    return limit is not None and elapsed >= limit and may_run_trials(experiment)


def _overdue(spec: ExperimentSpec, attempt: AttemptRow, now: datetime, heard_since: datetime | None) -> str | None:
    running = (now - attempt.started_at).total_seconds()
    last_word = max(filter(None, (attempt.started_at, attempt.last_report_at, heard_since)))
    silent = (now - last_word).total_seconds()
    limit, timeout = spec.limits.max_trial_seconds, spec.failures.report_timeout_seconds
    if timeout is not None and silent >= timeout:
        return f"no report for {silent:.0f} s (failures.report_timeout_seconds is {timeout:g})"
    if limit is not None and running >= limit:
        return f"ran for {running:.0f} s (limits.max_trial_seconds is {limit:g})"
    return None


def _end_overdue(context: Context, attempt_id: int, hearing: Hearing) -> bool:
    """A trial out of time may save and leave; a silent one is ended, since it would not hear."""
    with context.database.write() as session:
        held = locked(session, session.get_one(AttemptRow, attempt_id))
        why = _overdue(held.spec, held.attempt, held.now, hearing.since) if hearing.still() else None
        if held.attempt.ended_at is not None or why is None or held.trial.status != TrialStatus.RUNNING:
            return False
        if why.startswith("no report"):
            take_away(held, Failure(kind=FailureKind.SILENT, message=why))
            return True
        told = held.trial.stop_cause is None
        request_stop(held.trial, StopCause.MAX_TRIAL_SECONDS, why)
        return told
