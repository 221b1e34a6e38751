"""A user has a trial tried again that failed or was stopped."""

from service.domain.statuses import LIVE_TRIAL, TRIAL_REVIVALS, TrialStatus
from service.errors import WrongState
from service.operations.experiments.termination import check_not_ended
from service.operations.transitions import revive_trial
from service.runtime.context import Context
from service.store.lookup import locked_trial
from service.store.sql.database import database_now
from service.store.tables import TrialRow


def retry_trial(context: Context, trial_id: str) -> TrialRow:
    """Queues it again, to go on from its newest checkpoint; what it failed with before is on nobody's budget.

    A trial that is queued already stays so. Raises NotFound, and WrongState for any other trial and when its experiment
    is over.
    """
    with context.database.write() as session:
        experiment, trial = locked_trial(session, trial_id)
        check_not_ended(experiment, "tries none of its trials again")
        now, queued = database_now(session), TrialStatus.QUEUED
        if trial.status != queued and not revive_trial(
            session, experiment, trial, queued, reason="a user had it tried again", at=now
        ):
            raise _no_way(trial)
    context.notify_changed()
    return trial


def _no_way(trial: TrialRow) -> WrongState:
    from_ = sorted(status for status, targets in TRIAL_REVIVALS.items() if TrialStatus.QUEUED in targets)
    return WrongState(
        f"trial {trial.number} is {trial.status}; what can be tried again is a trial that is {' or '.join(from_)}",
        trial_status=trial.status,
        retryable=from_,
        allowed=["stop"] if trial.status in LIVE_TRIAL else [],
    )
