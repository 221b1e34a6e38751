"""Applies the limits in time and in GPU hours to trials and experiments.

Each attempt and each experiment is handled in a transaction of its own.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.statuses import StopCause, TrialStatus
from service.operations.attempts.attempt_end import revoke_lease
from service.operations.attempts.leases import lock_attempt
from service.operations.attempts.passed_time_limit import OutOfTime, out_of_time
from service.operations.attempts.reachability import ALWAYS, Reachability, holder_reachable_since, last_call_possible
from service.operations.early_stopping.recorded_milestones import catching_up
from service.operations.experiments.experiment_end import advance_experiment
from service.operations.experiments.gpu_hours import gpu_hours
from service.operations.locked_experiment import try_to_lock
from service.operations.transitions import request_stop
from service.runtime.caches.experiment_caches import readable, spec_of
from service.runtime.collected_errors import change_all, skip_locked
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.attempt_times import function_began_at
from service.store.attempts import running_attempts
from service.store.experiments import experiments_limited_in_time, may_run_trials
from service.store.sql.clock_jumps import SecondsSince, clock_jumps
from service.store.sql.database import database_now, wait_little_for_locks
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials.trials import asked_to_leave
from trainer.wire import Failure, FailureKind

ENDING_SECONDS = 600.0
"""How much longer an ending attempt may be without a report. Its holder waits for Ray's verdict on silent nodes, which
takes over a minute, and then delivers its last reports. Longer than usual leases: one that is silent then is lost."""


@dataclass(frozen=True)
class _Snapshot:
    """What a pass reads without locks, of experiments with limits in time."""

    seconds_since: SecondsSince
    running: Mapping[str, Sequence[AttemptRow]]
    """by experiment"""
    is_killed: Mapping[str, bool]
    """of running trials that were asked to leave"""


def enforce_time_limits(context: Context, reachability: Reachability = ALWAYS) -> int:
    """Apply the limits in time of trials and experiments. Return the number of stop requests."""
    with context.database.read() as session:
        experiments = readable(experiments_limited_in_time(session))
        if not experiments:
            return 0
        snapshot = _snapshot(session, [row.id for row in experiments])

    def enforce(_: Context, row: ExperimentRow) -> int:
        return _enforce(context, row, snapshot, reachability)

    return change_all(context, experiments, skip_locked(enforce, lambda row: row.id, set()))


def _snapshot(session: Session, experiment_ids: Collection[str]) -> _Snapshot:
    running = defaultdict[str, list[AttemptRow]](list)
    seconds_since = clock_jumps(session).until(database_now(session))
    for attempt in running_attempts(session, experiment_ids):
        running[attempt.experiment_id].append(attempt)
    return _Snapshot(seconds_since, running, asked_to_leave(session, experiment_ids))


def _enforce(context: Context, row: ExperimentRow, snapshot: _Snapshot, reachability: Reachability) -> int:
    spec, running, seconds_since = spec_of(row), snapshot.running.get(row.id, ()), snapshot.seconds_since
    overdue = {one: _overdue(spec, one, seconds_since, reachability.since) for one in running}
    due = [one.id for one, found in overdue.items() if found and _is_new(found, snapshot.is_killed.get(one.trial_id))]
    expired = may_run_trials(row) and _has_passed_limit(spec, row, running, seconds_since)
    if expired:
        with context.database.write() as session:
            wait_little_for_locks(session)
            locked = try_to_lock(session, row.id)
            if locked is not None:
                advance_experiment(locked, spec_of(locked.experiment))
    return sum(_end_overdue(context, attempt_id, reachability) for attempt_id in due) + expired


def _has_passed_limit(
    spec: ExperimentSpec, experiment: ExperimentRow, running: Sequence[AttemptRow], seconds_since: SecondsSince
) -> bool:
    """Whether a limit of the whole experiment, in time or in GPU hours, has been passed."""
    max_seconds, max_gpu_hours = spec.limits.max_seconds, spec.limits.max_gpu_hours
    if max_seconds is not None and seconds_since(experiment.created_at) >= max_seconds:
        return True
    return max_gpu_hours is not None and gpu_hours(experiment, spec, running, seconds_since) >= max_gpu_hours


def _overdue(
    spec: ExperimentSpec, attempt: AttemptRow, seconds_since: SecondsSince, reachable_since: datetime | None
) -> Failure | OutOfTime | None:
    """Return a failure for an attempt without reports, the limit that one has passed, else None."""
    heard_at = filter(None, (attempt.started_at, attempt.last_report_at, reachable_since))
    silent = min(map(seconds_since, heard_at))  # not since the latest time: the clock may have been set back
    timeout = spec.failures.report_timeout_seconds
    if timeout is not None and silent >= timeout + (ENDING_SECONDS if attempt.is_ending else 0):
        message = f"no report for {silent:.0f} s (failures.report_timeout_seconds is {timeout:g})"
        return Failure(kind=FailureKind.SILENT, message=message)
    began_at = function_began_at(attempt)
    return None if began_at is None else out_of_time(spec.limits, seconds_since(began_at))


@catching_up
def _end_overdue(context: Context, attempt_id: int, reachability: Reachability) -> bool:
    """Ask a trial that is out of time to save and leave; end a silent one, which would not answer the request."""
    with context.database.write() as session:
        wait_little_for_locks(session)
        leased = lock_attempt(session, session.get_one(AttemptRow, attempt_id))
        if not reachability.still(leased.now) or leased.attempt.ended_at is not None:
            return False
        unheard = max(0.0, (leased.now - last_call_possible(context, leased)).total_seconds())
        reachable_since = holder_reachable_since(session, leased, reachability)
        overdue = _overdue(leased.spec, leased.attempt, lambda at: leased.seconds_since(at) - unheard, reachable_since)
        if overdue is None or leased.trial.status != TrialStatus.RUNNING:
            return False
        if isinstance(overdue, Failure):
            revoke_lease(leased, overdue)
            return True
        return _stop_in_time(leased.trial, overdue)


def _stop_in_time(trial: TrialRow, overdue: OutOfTime) -> bool:
    """Return whether this is new to the trial's holder."""
    is_new = _is_new(overdue, None if trial.stop_cause is None else trial.killed)
    request_stop(trial, StopCause.MAX_TRIAL_SECONDS, overdue.reason)
    if is_new and overdue.is_kill:
        trial.killed = True
        if trial.stop_cause == StopCause.MAX_TRIAL_SECONDS:
            trial.stop_reason = overdue.reason
    return is_new


def _is_new(overdue: Failure | OutOfTime, is_killed: bool | None) -> bool:
    """`is_killed`: of the trial, None if it was not even asked to leave."""
    return isinstance(overdue, Failure) or is_killed is None or (overdue.is_kill and not is_killed)
