"""A user retries a trial that failed or was stopped."""

from service.domain.statuses import LIVE_TRIAL, TRIAL_REVIVALS, TrialStatus
from service.errors import WrongState
from service.operations.early_stopping.decisions import Decider
from service.operations.experiments.experiment_end import check_not_ended
from service.operations.locked_experiment import LockedExperiment, lock_of_trial
from service.operations.transitions import revive_trial
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.tables import TrialRow
from service.store.trials.ended_trials import ran_to_completion

_RETRYABLE = sorted(status for status, targets in TRIAL_REVIVALS.items() if TrialStatus.QUEUED in targets)


def retry_trial(context: Context, trial_id: str) -> TrialRow:
    """Queues the trial again, to resume from its newest checkpoint. Its earlier failures no longer count.

    A queued trial stays queued. Raises NotFound, and WrongState for a trial in any other status and for a trial whose
    experiment has ended.
    """
    with context.database.write() as session:
        locked, trial = lock_of_trial(session, trial_id)
        check_not_ended(locked.experiment, "retries none of its trials")
        if trial.status != TrialStatus.QUEUED:
            _retry(locked, trial)
    context.notify_changed()
    return trial


def _retry(locked: LockedExperiment, trial: TrialRow) -> None:
    had_end = ran_to_completion(trial)
    if not revive_trial(locked, trial, TrialStatus.QUEUED, reason="a user retried it"):
        raise _not_retryable(trial)
    if had_end:
        Decider(locked, spec_of(locked.experiment)).withdraw_end(trial)


def _not_retryable(trial: TrialRow) -> WrongState:
    return WrongState(
        f"trial {trial.number} is {trial.status}; only {' or '.join(_RETRYABLE)} trials can be retried",
        trial_status=trial.status,
        retryable=_RETRYABLE,
        allowed=["stop"] if trial.status in LIVE_TRIAL else [],
    )
