"""The statuses of experiments and trials, and the allowed moves between them, as data.

SQL guards, docs and tests derive from it.
"""

from enum import StrEnum


class ExperimentStatus(StrEnum):
    """`paused`: no new trials start, and running ones finish."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class TrialStatus(StrEnum):
    """`paused`: early stopping has stopped the trial for now. It holds no resources and may be resumed."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"


class StopCause(StrEnum):
    """Why a trial was asked to stop before its training function returned.

    `paused`: early stopping may resume the trial. Any cause that ends the trial replaces it. `bad_objective`: it
    reported something else than a number, so that its code is wrong.
    """

    EARLY_STOPPING = "early_stopping"
    PAUSED = "paused"
    TARGET_REACHED = "target_reached"
    DIVERGED = "diverged"
    BAD_OBJECTIVE = "bad_objective"
    USER = "user"
    EXPERIMENT_ENDED = "experiment_ended"
    MAX_TRIAL_SECONDS = "max_trial_seconds"


FAILED_BY_REPORT = frozenset({StopCause.DIVERGED, StopCause.BAD_OBJECTIVE})

DECIDED_BY_REPORT = FAILED_BY_REPORT | {StopCause.EARLY_STOPPING, StopCause.PAUSED, StopCause.TARGET_REACHED}
"""The causes that one of the trial's own reports gives: the training that follows it would not have taken place."""

EXPERIMENT_MOVES: dict[ExperimentStatus, frozenset[ExperimentStatus]] = {
    ExperimentStatus.RUNNING: frozenset(ExperimentStatus) - {ExperimentStatus.RUNNING},
    ExperimentStatus.PAUSED: frozenset(ExperimentStatus) - {ExperimentStatus.PAUSED},
    ExperimentStatus.COMPLETED: frozenset(),
    ExperimentStatus.FAILED: frozenset(),
    ExperimentStatus.STOPPED: frozenset(),
}

TRIAL_MOVES: dict[TrialStatus, frozenset[TrialStatus]] = {
    TrialStatus.QUEUED: frozenset({TrialStatus.RUNNING, TrialStatus.STOPPED}),
    TrialStatus.RUNNING: frozenset(TrialStatus) - {TrialStatus.RUNNING},
    TrialStatus.PAUSED: frozenset({TrialStatus.QUEUED, TrialStatus.PRUNED, TrialStatus.STOPPED}),
    TrialStatus.COMPLETED: frozenset(),
    TrialStatus.PRUNED: frozenset(),
    TrialStatus.FAILED: frozenset(),
    TrialStatus.STOPPED: frozenset(),
}

CAUSES_WITH_RESULT = frozenset({None, StopCause.MAX_TRIAL_SECONDS})
"""The causes with which a stopped trial has run to its end: its holder's decision, or a limit of its own time."""

TRIAL_REVIVALS: dict[TrialStatus, frozenset[TrialStatus]] = {
    TrialStatus.FAILED: frozenset({TrialStatus.QUEUED}),
    TrialStatus.STOPPED: frozenset({TrialStatus.QUEUED}),
}
"""The moves that leave a final status: at a user's request, or when the limit that ended the experiment is moved."""

LIVE_EXPERIMENT = frozenset(status for status, targets in EXPERIMENT_MOVES.items() if targets)
LIVE_TRIAL = frozenset(status for status, targets in TRIAL_MOVES.items() if targets)

ELIGIBLE_FOR_BEST = (TrialStatus.COMPLETED, TrialStatus.STOPPED)
"""Trials that may be the best: they ended by themselves or at a user's request, not by early stopping."""

STATUS_AFTER_STOP: dict[StopCause, TrialStatus] = {
    StopCause.EARLY_STOPPING: TrialStatus.PRUNED,
    StopCause.PAUSED: TrialStatus.PAUSED,
    StopCause.TARGET_REACHED: TrialStatus.COMPLETED,
    StopCause.DIVERGED: TrialStatus.FAILED,
    StopCause.BAD_OBJECTIVE: TrialStatus.FAILED,
    StopCause.USER: TrialStatus.STOPPED,
    StopCause.EXPERIMENT_ENDED: TrialStatus.STOPPED,
    StopCause.MAX_TRIAL_SECONDS: TrialStatus.STOPPED,
}
