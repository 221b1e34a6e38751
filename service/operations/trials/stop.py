"""A user stops one trial."""

from service.domain.statuses import StopCause, TrialStatus
from service.operations.experiments.experiment_end import advance_experiment
from service.operations.locked_experiment import lock_of_trial
from service.operations.transitions import move_trial, request_stop
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.tables import TrialRow

_REASON = "a user stopped it"


def stop_trial(context: Context, trial_id: str) -> TrialRow:
    """A running trial stops at its next report; a queued or paused one ends now; an ended one stays as it is.

    Raises NotFound.
    """
    with context.database.write() as session:
        locked, trial = lock_of_trial(session, trial_id)
        if trial.status in (TrialStatus.QUEUED, TrialStatus.PAUSED):
            trial.stop_cause = StopCause.USER
            move_trial(locked, trial, TrialStatus.STOPPED, reason=_REASON)
            advance_experiment(locked, spec_of(locked.experiment))
        elif trial.status == TrialStatus.RUNNING:
            request_stop(trial, StopCause.USER, _REASON)
    context.holder_changes.notify([trial_id])
    context.notify_changed()
    return trial
