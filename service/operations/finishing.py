"""The end of an attempt, and what becomes of its trial."""

import contextlib
from dataclasses import dataclass

from service.domain.failures import Retry, after_failure
from service.domain.statuses import STOPPED_TRIAL, StopCause, TrialStatus
from service.operations.assigning import assign, assignment_of, may_go_on
from service.operations.context import Context
from service.operations.ending import settle_experiment
from service.operations.leases import Held, find_held, lease_lost
from service.operations.moving import move_trial
from service.store.attempts import attempts_of
from service.store.events import append_event
from service.store.trials import reports_of
from trainer.wire import Assignment, Failure, FailureKind, Finish, Finished, Outcome


@dataclass(frozen=True)
class Ending:
    """A trial's next status, and why. `kind` is set when it failed."""

    to: TrialStatus
    reason: str | None
    kind: FailureKind | None = None


def finish(context: Context, trial_id: str, token: str | None, message: Finish) -> Finished:
    """Ends the attempt; with `next`, answers the experiment's next assignment. Asked again, answers the same.

    Raises LeaseLost when the attempt was ended by somebody else, Unauthorized.
    """
    with contextlib.ExitStack() as stack:
        with context.database.write() as session:
            held = find_held(session, trial_id, token)
            if message.next:
                stack.enter_context(context.handover.of(held.experiment.id))
            if held.attempt.ended_at is None:
                end_attempt(held, message.outcome, message.error)
            elif held.attempt.outcome != message.outcome:
                raise lease_lost(held.attempt)
        following = _next(context, held) if message.next else None
    context.ring()
    return Finished(status=held.trial.status, next=following)


def end_attempt(held: Held, outcome: Outcome, failure: Failure | None) -> None:
    """The only way an attempt ends, by its holder's word or by its silence."""
    failure = _failure(held, outcome, failure)
    earlier = _earlier_failures(held)
    held.attempt.ended_at = held.now
    held.attempt.outcome = outcome
    held.attempt.failure = failure.model_dump(mode="json") if failure else None
    data = {
        "attempt": held.attempt.number,
        "outcome": outcome,
        "kind": failure.kind if failure else None,
        "message": failure.message if failure else None,
    }
    append_event(held.session, held.experiment, "attempt.ended", data, at=held.now, trial_id=held.trial.id)
    ending = _ending(held, outcome, failure, earlier)
    held.trial.failure_kind = ending.kind
    move_trial(
        held.session, held.experiment, held.trial, ending.to, reason=ending.reason, at=held.now, kind=ending.kind
    )
    settle_experiment(held.session, held.experiment, held.spec, held.now)


def _next(context: Context, held: Held) -> Assignment | None:
    holder, request_id = held.attempt.holder, f"after-{held.attempt.id}"
    given = assignment_of(context, holder, request_id)
    if given is not None or not may_go_on(context, held.experiment.id):
        return given
    return assign(context, held.experiment.id, holder, request_id)


def _failure(held: Held, outcome: Outcome, failure: Failure | None) -> Failure | None:
    if outcome is Outcome.FAILED:
        return failure or Failure(kind=FailureKind.USER_ERROR, message="failed; its holder did not say why")
    metric = held.spec.objective.metric
    if outcome is Outcome.COMPLETED and held.trial.value is None and held.trial.stop_cause is None:
        return Failure(kind=FailureKind.SILENT, message=f"ended without ever reporting {metric!r}; {_reported(held)}")
    return None


def _reported(held: Held) -> str:
    held.session.flush()
    reports = reports_of(held.session, held.trial.id, after_step=-1, limit=20)
    names = sorted({name for report in reports for name in report.metrics})
    return f"it reported: {', '.join(names)}" if names else "it reported nothing"


def _earlier_failures(held: Held) -> list[FailureKind]:
    earlier = [attempt.failure for attempt in attempts_of(held.session, held.trial.id) if attempt.failure]
    return [FailureKind(failure["kind"]) for failure in earlier]


def _ending(held: Held, outcome: Outcome, failure: Failure | None, earlier: list[FailureKind]) -> Ending:
    trial = held.trial
    cause = StopCause(trial.stop_cause) if trial.stop_cause else None
    if cause is StopCause.DIVERGED:
        return Ending(TrialStatus.FAILED, trial.stop_reason, FailureKind.DIVERGED)
    if outcome is Outcome.COMPLETED and failure is None and cause is not StopCause.EARLY_STOPPING:
        return Ending(TrialStatus.COMPLETED, trial.stop_reason)
    if cause is not None:
        return Ending(STOPPED_TRIAL[cause], trial.stop_reason)
    if failure is None:
        return Ending(TrialStatus.STOPPED, "its holder stopped it")
    next_move = after_failure(failure.kind, earlier, held.spec.failures.max_retries)
    if isinstance(next_move, Retry):
        return Ending(TrialStatus.QUEUED, f"tried again after: {failure.message}")
    return Ending(TrialStatus.FAILED, failure.message, failure.kind)
