"""Ends an attempt, and decides what becomes of its trial."""

from dataclasses import dataclass
from datetime import timedelta

from service.domain.attempt_holders import is_caller
from service.domain.retry_policy import counted_failures, is_miss, may_retry
from service.domain.statuses import STATUS_AFTER_STOP, StopCause, TrialStatus
from service.operations.attempts.attempt_cost import add_to_sums
from service.operations.attempts.leases import LeasedAttempt
from service.operations.attempts.passed_time_limit import out_of_time
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.early_stopping.rule_choice import choose_after_trial
from service.operations.experiments.confirmation import RUNS_AGAIN
from service.operations.experiments.experiment_end import advance_experiment
from service.operations.transitions import move_trial
from service.runtime.observations.targets_and_constraints import broken_constraints, missing_objectives
from service.store.attempt_times import function_began_at
from service.store.attempts import attempts_of
from service.store.checkpoints.missing_checkpoints import MISSES, missing_checkpoints
from service.store.events import append_event
from service.store.json_of_other_versions import stored
from service.store.reports import reports_of
from service.store.tables import AttemptRow
from service.store.trials.ended_trials import ran_to_completion
from service.store.trials.resume_point import ResumePoint, resume_point
from trainer.wire import Failure, FailureKind, Kind, Outcome, PhaseSeconds

HOLDERS_CLOCK = 0.1
"""Holders enforce the time limits of trials themselves, by clocks that may be ahead of the service's by a fraction."""

_FAILURE_AFTER_STOP = {
    StopCause.DIVERGED: FailureKind.DIVERGED,
    StopCause.BAD_OBJECTIVE: FailureKind.USER_ERROR,
}
"""There is no retry: the same params are likely to end so again."""
WITHOUT_CHECKPOINT = "; it has saved no checkpoint, so it would start from the beginning"
WHAT_COUNTS = (
    "; the metrics of rank 0 count, without those that are neither one number nor text, which the trial's log names"
)
HOW_TO_REPORT = ": report with ray.train.report(), not with tune.report() or print()"


@dataclass(frozen=True)
class Following:
    """What follows for the trial: its next status, with the reason. `kind` is set if the trial failed.

    `stop_cause` is set if the trial's holder has stopped it for a cause that the service had not asked it to stop for.
    """

    to: TrialStatus
    reason: str | None
    kind: FailureKind | None = None
    stop_cause: StopCause | None = None


def end_attempt(leased: LeasedAttempt, outcome: Outcome, reported: Failure | None) -> None:
    """The only way in which an attempt ends."""
    trial, now = leased.trial, leased.now
    failure = _failure(leased, outcome, reported)
    earlier = _earlier_failures(leased) if failure else []
    leased.attempt.ended_at = now
    leased.attempt.outcome = outcome
    leased.attempt.failure = failure.model_dump(mode="json") if failure else None
    data = {
        "attempt": leased.attempt.number,
        "outcome": outcome,
        "kind": failure.kind if failure else None,
        "message": failure.message if failure else None,
        "cost": add_to_sums(leased).to_json(),
    }
    append_event(leased.session, leased.experiment, "attempt.ended", data, at=now, trial_id=trial.id)
    trial.stop_reason = _stop_reason(leased)
    after = _following(leased, outcome, failure, earlier)
    trial.failure_kind = after.kind
    trial.stop_cause = after.stop_cause or trial.stop_cause
    move_trial(leased, trial, after.to, reason=after.reason, kind=after.kind, cost=trial.cost)
    if ran_to_completion(trial):
        Decider(leased, leased.spec).record_end(trial)
    changed = choose_after_trial(leased, leased.spec, trial)
    paused_at = trial.paused_milestone if after.to is TrialStatus.PAUSED else None
    own = [] if paused_at is None else [paused_at]
    # Under a new rule, trials may be paused at any of its milestones.
    advance_experiment(leased, changed or leased.spec, own if changed is None else None)


def revoke_lease(leased: LeasedAttempt, failure: Failure) -> None:
    """End an attempt whose holder is silent. Later calls of the holder are refused."""
    leased.attempt.lease_expires_at = None
    end_attempt(leased, Outcome.FAILED, failure)


def end_as_lost(leased: LeasedAttempt, message: str, lease_seconds: float, *, began: bool = True) -> None:
    """`began`: whether one of its workers may have started, as far as the caller knows."""
    began = began and _may_have_begun(leased, lease_seconds)
    revoke_lease(leased, Failure(kind=FailureKind.LOST, message=message, began=began))


def _may_have_begun(leased: LeasedAttempt, lease_seconds: float) -> bool:
    """A slot extends the lease before it starts a worker."""
    attempt = leased.attempt
    first_lease = attempt.started_at + timedelta(seconds=lease_seconds)
    is_extended = attempt.lease_expires_at is None or attempt.lease_expires_at > first_lease
    return is_extended or attempt.last_report_at is not None or is_caller(attempt.holder)


def _failure(leased: LeasedAttempt, outcome: Outcome, reported: Failure | None) -> Failure | None:
    if leased.trial.stop_cause == StopCause.BAD_OBJECTIVE:
        return Failure(kind=FailureKind.USER_ERROR, message=leased.trial.stop_reason or "")
    if outcome is Outcome.FAILED:
        return reported or Failure(
            kind=FailureKind.USER_ERROR, message="the client that ran it reported a failure without a message"
        )
    if leased.attempt.uncounted_report_count:
        return None
    missing = missing_objectives(leased.spec, leased.trial)
    is_unasked = leased.trial.stop_cause in (None, StopCause.PAUSED) or _waits_for_report(leased)
    if outcome is Outcome.COMPLETED and missing and is_unasked:
        names = " and ".join(repr(name) for name in missing)
        return Failure(kind=FailureKind.SILENT, message=f"ended without ever reporting {names}; {_reported(leased)}")
    return None


def _reported(leased: LeasedAttempt) -> str:
    reports = reports_of(leased.session, leased.trial.id, after_step=-1, limit=20)
    names = sorted({name for report in reports for name in report.metrics})
    runs_function = leased.spec.trainer.kind not in (Kind.COMMAND, Kind.EXTERNAL)
    what_counts = WHAT_COUNTS if runs_function else ""
    if names:
        advice = f"Report the objective under its name, or submit with another name{what_counts}"
        return f"it reported: {', '.join(names)}. {advice}"
    if reports:
        return f"its reports had no metrics that can be stored{what_counts}"
    return f"it reported nothing{HOW_TO_REPORT if runs_function else ''}"


def _earlier_failures(leased: LeasedAttempt) -> list[Failure]:
    """The failures of earlier attempts that count against the budgets.

    A failure after the deciding report of its attempt does not: the function should not have trained on. A loss counts
    only if that attempt resumed from the same step as this one: a trial that has saved a new checkpoint in between
    makes progress, so it does not cause the losses. Attempts that missed their checkpoints count whatever their steps,
    back to the last other attempt that reported: an emptied storage must not cost two attempts for each checkpoint.
    """
    attempts = attempts_of(leased.session, leased.trial.id)[leased.trial.forgiven_attempts :]
    ended = [(one, stored(Failure, one.failure) if one.failure else None) for one in attempts if one.ended_at]
    reported = [one.number for one, failure in ended if one.last_report_at and not (failure and is_miss(failure))]
    last_reported = max(reported, default=0)

    def is_counted(one: AttemptRow, failure: Failure) -> bool:
        if is_miss(failure):
            return one.number > last_reported
        return failure.kind is not FailureKind.LOST or one.resume_step == leased.attempt.resume_step

    failed = [(one, failure) for one, failure in ended if failure and not one.uncounted_report_count]
    counted = [(failure, one.ended_at or leased.now) for one, failure in failed if is_counted(one, failure)]
    return counted_failures(counted, leased.now)


def _stop_reason(leased: LeasedAttempt) -> str | None:
    """Why the trial was asked to stop; if a time limit was the cause, the limit that it had passed at its end."""
    is_out_of_time = leased.trial.stop_cause == StopCause.MAX_TRIAL_SECONDS and not leased.trial.killed
    return (is_out_of_time and _limit_passed(leased)) or leased.trial.stop_reason


def _following(leased: LeasedAttempt, outcome: Outcome, failure: Failure | None, earlier: list[Failure]) -> Following:
    """What the attempt's end means for its trial, which has its `stop_reason` already.

    An attempt with reports that do not count counts as stopped, without a failure. Of these, the first that is true
    decides:

    1. One of its reports has failed the trial.
    2. The trial has completed with all values, and early stopping has not asked it to stop.
    3. The trial was asked to stop, and not only to pause: it ends as asked, or runs again. But if its time limit has
       passed and it was not told yet, a failure without another attempt comes first (5).
    4. Nothing has failed: the trial pauses as asked, or its holder has stopped it.
    5. No further attempt may be made: the trial fails.
    6. The trial pauses as asked, or is queued for another attempt.
    """
    trial, spec = leased.trial, leased.spec
    if leased.attempt.uncounted_report_count:
        outcome, failure = Outcome.STOPPED, None  # as without the outage: the function would have left at the decision
    cause = StopCause(trial.stop_cause) if trial.stop_cause else None
    if cause in _FAILURE_AFTER_STOP:
        return Following(TrialStatus.FAILED, trial.stop_reason, _FAILURE_AFTER_STOP[cause])
    is_whole = outcome is Outcome.COMPLETED and failure is None and not missing_objectives(spec, trial)
    if is_whole and cause is not StopCause.EARLY_STOPPING:
        broken = broken_constraints(spec, trial)
        stop_reason = None if cause is StopCause.PAUSED else trial.stop_reason
        return Following(TrialStatus.COMPLETED, stop_reason or (f"infeasible: {broken}" if broken else None))
    is_final = failure is not None and not may_retry(failure, earlier, spec.failures.max_retries)
    has_failed_before = is_final and _waits_for_report(leased)
    if cause is not None and cause is not StopCause.PAUSED and not has_failed_before:
        return _as_asked(leased, cause)
    if failure is None:
        return _paused(leased) if cause else _stopped_by_holder(leased)
    if is_final:
        return Following(TrialStatus.FAILED, failure.message, failure.kind)
    return _paused(leased) if cause else Following(TrialStatus.QUEUED, _why_again(leased, failure))


def _why_again(leased: LeasedAttempt, failure: Failure) -> str:
    """What has failed, and with which older checkpoint the trial goes on if the attempt's own is missing."""
    older = _older_point(leased) if failure.is_checkpoint_missing else None
    if older is None:
        return failure.message
    return (
        f"{failure.message}; {MISSES} attempts have missed the checkpoint of step {leased.attempt.resume_step}, so the "
        f"trial continues from that of step {older.step}"
    )


def _older_point(leased: LeasedAttempt) -> ResumePoint | None:
    """What the trial resumes from in place of the attempt's checkpoint, which is missing. None if that is not so.

    If all are missing, the newest is tried again. The attempt may also have saved a newer one, and missed its own then.
    """
    attempt = leased.attempt
    point = resume_point(leased.session, attempt.trial_id)
    if point is None or attempt.resume_step is None or point.step >= attempt.resume_step:
        return None
    missing = missing_checkpoints(leased.session, [attempt.trial_id])
    is_older = (attempt.trial_id, attempt.resume_uri) in missing and (attempt.trial_id, point.uri) not in missing
    return point if is_older else None


def _as_asked(leased: LeasedAttempt, cause: StopCause) -> Following:
    """A trial that was asked to stop. It goes on if the experiment, whose end was the cause, does."""
    if cause is StopCause.EXPERIMENT_ENDED and leased.experiment.end_reason is None:
        return Following(TrialStatus.QUEUED, RUNS_AGAIN)
    return Following(STATUS_AFTER_STOP[cause], leased.trial.stop_reason)


def _waits_for_report(leased: LeasedAttempt) -> bool:
    """Whether the trial's time limit has passed, and it has not been told yet: it learns of it at its next report."""
    if leased.trial.stop_cause != StopCause.MAX_TRIAL_SECONDS or leased.trial.killed:
        return False
    began_at, reported_at = function_began_at(leased.attempt), leased.attempt.last_report_at
    if began_at is None or reported_at is None:
        return True
    trained = leased.seconds_since(began_at) - leased.seconds_since(reported_at)
    return out_of_time(leased.spec.limits, trained) is None


def _paused(leased: LeasedAttempt) -> Following:
    """A trial that was asked to pause. It continues immediately if a new rule does not pause it."""
    if leased.trial.paused_milestone is None:
        return Following(TrialStatus.QUEUED, RULE_CHANGED)
    can_resume = resume_point(leased.session, leased.trial.id) is not None
    reason = f"{leased.trial.stop_reason}{'' if can_resume else WITHOUT_CHECKPOINT}"
    return Following(STATUS_AFTER_STOP[StopCause.PAUSED], reason)


def _stopped_by_holder(leased: LeasedAttempt) -> Following:
    passed = _limit_passed(leased, HOLDERS_CLOCK)
    cause = StopCause.MAX_TRIAL_SECONDS if passed else None
    return Following(TrialStatus.STOPPED, passed or "the client that ran it stopped it", stop_cause=cause)


def _limit_passed(leased: LeasedAttempt, tolerance: float = 0.0) -> str | None:
    """The time limit that it had passed at its end: a slot kills by itself, after it was asked to leave."""
    began_at = function_began_at(leased.attempt) or leased.attempt.started_at
    told = stored(PhaseSeconds, leased.attempt.phases).total if leased.attempt.phases else 0.0
    seconds = max(told, leased.seconds_since(began_at))
    passed = out_of_time(leased.spec.limits, seconds, tolerance)
    return passed.reason if passed is not None else None
