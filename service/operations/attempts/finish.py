"""A holder reports the end of its attempt, and may get the experiment's next trial in the same call."""

import contextlib

from service.domain.statuses import TrialStatus
from service.operations.attempts.attempt_cost import note_last_phases
from service.operations.attempts.attempt_end import end_attempt
from service.operations.attempts.leases import LeasedAttempt, check_holder, lease_lost, lock_attempt
from service.operations.attempts.scheduling.assignment import Claimant, earlier_answer, id_after
from service.operations.attempts.scheduling.experiment_line import is_first_in_line
from service.operations.attempts.scheduling.next_trial import (
    AssignResult,
    NothingToRun,
    ProposalFailed,
    assign_after,
    propose_ahead,
    try_assign,
)
from service.operations.attempts.system_metrics import note_system_metrics
from service.runtime.context import Context
from service.runtime.proposals import ProposalPending
from service.store.agents import storage_error_of
from trainer.wire import Finish, Finished


def finish(context: Context, trial_id: str, token: str | None, message: Finish) -> Finished:
    """End the attempt; with `next`, also return the experiment's next assignment. A repeated call gets the same answer.

    Raises LeaseLost if the attempt has ended in another way, Unauthorized, NotFound, and MilestonesMissing if nothing
    is stored because the caller must catch up first.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(context.notify_changed)
        stack.callback(context.holder_changes.notify, [trial_id])
        with context.database.write() as session:
            leased = lock_attempt(session, check_holder(session, trial_id, token))
            experiment, attempt = leased.experiment, leased.attempt
            if message.next:
                stack.enter_context(context.slot_handover.waiting(experiment.id))
            was_open = experiment.end_reason is None
            is_repeat = attempt.ended_at is not None
            if not is_repeat:
                note_last_phases(leased, message.phases)
                note_system_metrics(leased, message.system_metrics)
                end_attempt(leased, message.outcome, message.error)
            elif attempt.lease_expires_at is None or attempt.outcome != message.outcome:
                raise lease_lost(attempt)
            status = TrialStatus(leased.trial.status)  # before the trial's own next attempt may be assigned
            claimant = Claimant(attempt.holder, id_after(attempt.id))
            outcome = _try_next(context, leased, claimant, message, is_repeat=is_repeat)
            if was_open and experiment.end_reason:
                stack.callback(context.holder_changes.notify)
        try:
            following = assign_after(context, experiment.id, claimant, outcome)
        except (ProposalFailed, ProposalPending):
            following = None  # the experiment ends with the reason, or waits; this attempt's end is stored all the same
        propose_ahead(context, experiment.id)
        return Finished(status=status, next=following)


def _try_next(
    context: Context, leased: LeasedAttempt, claimant: Claimant, message: Finish, *, is_repeat: bool
) -> AssignResult:
    """Assign the next trial, if it is asked for, in the transaction that freed the capacity."""
    if not message.next:
        return NothingToRun()
    if is_repeat and (earlier := earlier_answer(context, leased.session, claimant)) is not None:
        return earlier
    if message.error is not None and message.error.is_start_given_back:
        return NothingToRun()  # its slot may hold nothing: only a claim tells what is free
    if storage_error_of(leased.session, leased.attempt.holder) is not None:
        return NothingToRun()
    # A repeat need not wait in line: the first call has, and may be about to start a trial for both.
    if not is_repeat and not is_first_in_line(context, leased.session, leased.experiment, leased.attempt.holder):
        return NothingToRun()
    return try_assign(context, leased, claimant)
