"""Why experiments end, and what follows from each reason, as data."""

from collections.abc import Mapping
from enum import StrEnum

from service.domain.statuses import ExperimentStatus


class EndReason(StrEnum):
    """Why an experiment ended."""

    MAX_TRIALS = "max_trials"
    MAX_SECONDS = "max_seconds"
    MAX_GPU_HOURS = "max_gpu_hours"
    TARGET_REACHED = "target_reached"
    NO_IMPROVEMENT = "no_improvement"
    SPACE_EXHAUSTED = "space_exhausted"
    TOO_MANY_FAILURES = "too_many_failures"
    CANNOT_START = "cannot_start"
    SEARCH_FAILED = "search_failed"
    USER = "user"


REVIVED_BY: Mapping[EndReason, str] = {
    EndReason.MAX_TRIALS: "limits.max_trials",
    EndReason.MAX_SECONDS: "limits.max_seconds",
    EndReason.MAX_GPU_HOURS: "limits.max_gpu_hours",
    EndReason.TARGET_REACHED: "the objective's target",
    EndReason.NO_IMPROVEMENT: "limits.no_improvement",
    EndReason.TOO_MANY_FAILURES: "failures.max_failed_trials, or limits.max_trials if all of them have failed",
}
"""For each reason that a user can undo, the limit or target: when that is changed, the experiment runs again."""

EXPERIMENT_REVIVALS = frozenset(REVIVED_BY)
"""The reasons that a user can undo by a change."""

REVERSIBLE_ENDS = EXPERIMENT_REVIVALS | {EndReason.USER}
"""The reasons that a user can undo, by a change or by `resume`."""

STATUS_AFTER_END: dict[EndReason, ExperimentStatus] = {
    EndReason.MAX_TRIALS: ExperimentStatus.COMPLETED,
    EndReason.MAX_SECONDS: ExperimentStatus.COMPLETED,
    EndReason.MAX_GPU_HOURS: ExperimentStatus.COMPLETED,
    EndReason.TARGET_REACHED: ExperimentStatus.COMPLETED,
    EndReason.NO_IMPROVEMENT: ExperimentStatus.COMPLETED,
    EndReason.SPACE_EXHAUSTED: ExperimentStatus.COMPLETED,
    EndReason.TOO_MANY_FAILURES: ExperimentStatus.FAILED,
    EndReason.CANNOT_START: ExperimentStatus.FAILED,
    EndReason.SEARCH_FAILED: ExperimentStatus.FAILED,
    EndReason.USER: ExperimentStatus.STOPPED,
}

ENDS_THAT_LET_TRIALS_RUN = frozenset({EndReason.SPACE_EXHAUSTED, EndReason.SEARCH_FAILED})
"""Reasons for which no new trial is created while the existing ones continue. Any other reason replaces them."""

CONFIRMED_ENDS = frozenset(
    {EndReason.MAX_TRIALS, EndReason.SPACE_EXHAUSTED, EndReason.NO_IMPROVEMENT, EndReason.TARGET_REACHED}
)
"""Reasons that end a search but not yet an experiment with `confirm`: its winners run again first."""
