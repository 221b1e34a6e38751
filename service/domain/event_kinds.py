"""The kinds of events in an experiment's log. docs/reference/events.md says when each is appended."""

from collections.abc import Mapping
from typing import Literal, get_args

from service.domain.statuses import ExperimentStatus, TrialStatus

EventKind = Literal[
    "experiment.created",
    "experiment.search_chosen",
    "experiment.warm_started",
    "experiment.changed",
    "experiment.running",
    "experiment.paused",
    "experiment.ending",
    "experiment.confirming",
    "experiment.confirmed",
    "experiment.completed",
    "experiment.failed",
    "experiment.stopped",
    "trial.created",
    "trial.queued",
    "trial.running",
    "trial.paused",
    "trial.exploited",
    "trial.completed",
    "trial.pruned",
    "trial.failed",
    "trial.stopped",
    "report",
    "report.uncounted",
    "decision",
    "checkpoint",
    "checkpoint.pinned",
    "checkpoint.unpinned",
    "checkpoint.removed",
    "attempt.world_size",
    "attempt.system_metrics",
    "attempt.ended",
]
"""A version may read events that another one has appended, so readers ignore kinds that are not here."""

EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)

EXPERIMENT_MOVED: Mapping[ExperimentStatus, EventKind] = {
    ExperimentStatus.RUNNING: "experiment.running",
    ExperimentStatus.PAUSED: "experiment.paused",
    ExperimentStatus.COMPLETED: "experiment.completed",
    ExperimentStatus.FAILED: "experiment.failed",
    ExperimentStatus.STOPPED: "experiment.stopped",
}
"""The event of a move, by the status that the experiment has then."""

TRIAL_MOVED: Mapping[TrialStatus, EventKind] = {
    TrialStatus.QUEUED: "trial.queued",
    TrialStatus.RUNNING: "trial.running",
    TrialStatus.PAUSED: "trial.paused",
    TrialStatus.COMPLETED: "trial.completed",
    TrialStatus.PRUNED: "trial.pruned",
    TrialStatus.FAILED: "trial.failed",
    TrialStatus.STOPPED: "trial.stopped",
}
"""The event of a move, by the status that the trial has then."""
