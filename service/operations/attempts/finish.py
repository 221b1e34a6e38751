"""The end of an attempt, and what becomes of its trial."""

import contextlib
from dataclasses import dataclass

from service.domain.failures import Retry, counted_failures, decide_retry
from service.domain.statuses import STATUS_AFTER_STOP, StopCause, TrialStatus
from service.operations.attempts.assign import (
    Asker,
    ProposalFailed,
    comes_first,
    complete,
    given_in,
    propose_ahead,
    take,
)
from service.operations.attempts.leases import Held, find_held, lease_lost
from service.operations.early_stopping.evaluate import note_completion
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.experiments.termination import advance_experiment
from service.operations.transitions import move_trial
from service.runtime.context import Context
from service.runtime.objective_values import broken_constraints, missing_objectives
from service.runtime.proposal_cache import Place
from service.store.attempts import attempts_of
from service.store.events import append_event
from service.store.tables import TrialRow
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
        stack.callback(context.ring)
        stack.callback(context.told.ring, [trial_id])
        with context.database.write() as session:
            held = find_held(session, trial_id, token)
            if message.next:
                stack.enter_context(context.handover.of(held.experiment.id))
            was_open = held.experiment.end_reason is None
            is_new = held.attempt.ended_at is None
            if is_new:
                end_attempt(held, message.outcome, message.error)
            elif held.attempt.lease_expires_at is None or held.attempt.outcome != message.outcome:
                raise lease_lost(held.attempt)
            status = TrialStatus(held.trial.status)  # its own next attempt may be what is given on
            asker = Asker(held.attempt.holder, f"after-{held.attempt.id}")
            taken = _take_next(context, held, asker, is_new=is_new) if message.next else None
            if was_open and held.experiment.end_reason:
                stack.callback(context.told.ring)
        next_one = _complete(context, held, asker, taken)
        propose_ahead(context, held.experiment.id)
        return Finished(status=status, next=next_one)


def take_away(held: Held, failure: Failure) -> None:
    """Ends an attempt whose holder fell silent: its lease is gone, and no word of the holder counts any more."""
    held.attempt.lease_expires_at = None
    end_attempt(held, Outcome.FAILED, failure)


def end_attempt(held: Held, outcome: Outcome, failure: Failure | None) -> None:
    """The only way an attempt ends."""
    failure = _failure(held, outcome, failure)
    earlier = _earlier_failures(held) if failure else []
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
    if ending.to is TrialStatus.COMPLETED:
        note_completion(held)
    waits_at = held.trial.paused_milestone if ending.to is TrialStatus.PAUSED else None
    reached = [] if waits_at is None else [waits_at]
    advance_experiment(held.session, held.experiment, held.spec, held.now, reached)


def _take_next(context: Context, held: Held, asker: Asker, *, is_new: bool) -> Assignment | Place | None:
    """What the holder that has just become free gets of the experiment, in the transaction that made it free."""
    given = None if is_new else given_in(context, held.session, asker)
    if given is not None:
        return given.assignment
    return (
        take(context, held.session, held.experiment, asker)
        if comes_first(held.session, held.experiment, held.now)
        else None
    )


def _complete(context: Context, held: Held, asker: Asker, taken: Assignment | Place | None) -> Assignment | None:
    try:
        return complete(context, held.experiment.id, asker, taken)
    except ProposalFailed:
        return None  # the experiment says why; the end that was reported counts all the same


def _failure(held: Held, outcome: Outcome, failure: Failure | None) -> Failure | None:
    if outcome is Outcome.FAILED:
        return failure or Failure(kind=FailureKind.USER_ERROR, message="failed; its holder did not say why")
    missing = missing_objectives(held.spec, held.trial)
    if outcome is Outcome.COMPLETED and missing and held.trial.stop_cause in (None, StopCause.PAUSED):
        names = " and ".join(repr(name) for name in missing)
        return Failure(kind=FailureKind.SILENT, message=f"ended without ever reporting {names}; {_reported(held)}")
    return None


def _why_infeasible(held: Held) -> str | None:
    broken = broken_constraints(held.spec, held.trial)
    return f"infeasible: {broken}" if broken else None


def _reported(held: Held) -> str:
    held.session.flush()
    reports = reports_of(held.session, held.trial.id, after_step=-1, limit=20)
    names = sorted({name for report in reports for name in report.metrics})
    return f"it reported: {', '.join(names)}" if names else "it reported nothing"


def _holders_reason(held: Held) -> str:
    """Holders keep max_trial_seconds by themselves; their clocks may be a little ahead of ours."""
    limit, ran = held.spec.limits.max_trial_seconds, (held.now - held.attempt.started_at).total_seconds()
    if limit is not None and ran > 0.9 * limit:
        return f"ran for {ran:.0f} s (limits.max_trial_seconds is {limit:g})"
    return "its holder stopped it"


def _earlier_failures(held: Held) -> list[Failure]:
    """Those that count. Of the losses, the ones from the same checkpoint on: who gets on in between ends no nodes."""
    attempts = attempts_of(held.session, held.trial.id)[held.trial.forgiven_attempts :]
    earlier = [(Failure.model_validate(one.failure), one) for one in attempts if one.failure]
    here = [
        (failure, one.ended_at or held.now)
        for failure, one in earlier
        if failure.kind is not FailureKind.LOST or one.resume_step == held.attempt.resume_step
    ]
    return counted_failures(here, held.now)


def _ending(held: Held, outcome: Outcome, failure: Failure | None, earlier: list[Failure]) -> Ending:
    trial = held.trial
    cause = StopCause(trial.stop_cause) if trial.stop_cause else None
    if cause is StopCause.DIVERGED:
        return Ending(TrialStatus.FAILED, trial.stop_reason, FailureKind.DIVERGED)
    whole = outcome is Outcome.COMPLETED and failure is None and not missing_objectives(held.spec, trial)
    if whole and cause is not StopCause.EARLY_STOPPING:
        told = None if cause is StopCause.PAUSED else trial.stop_reason
        return Ending(TrialStatus.COMPLETED, told or _why_infeasible(held))
    if cause is not None and cause is not StopCause.PAUSED:
        return Ending(STATUS_AFTER_STOP[cause], trial.stop_reason)
    if failure is None:
        return _paused(trial) if cause else Ending(TrialStatus.STOPPED, _holders_reason(held))
    next_move = decide_retry(failure, earlier, held.spec.failures.max_retries)
    if not isinstance(next_move, Retry):
        return Ending(TrialStatus.FAILED, failure.message, failure.kind)
    return _paused(trial) if cause else Ending(TrialStatus.QUEUED, f"tried again after: {failure.message}")


def _paused(trial: TrialRow) -> Ending:
    """However it left. Where another rule does not have it wait any more, it goes on at once."""
    if trial.paused_milestone is None:
        return Ending(TrialStatus.QUEUED, RULE_CHANGED)
    return Ending(STATUS_AFTER_STOP[StopCause.PAUSED], trial.stop_reason)
