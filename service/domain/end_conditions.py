"""When an experiment ends: a pure function of its counts."""

import math
from dataclasses import dataclass

from service.domain.end_reasons import EndReason
from service.domain.repeated_failure import FAILURES_TO_GIVE_UP, RepeatedFailure
from service.domain.retry_policy import never_started
from trainer.wire import FailureKind


@dataclass(frozen=True)
class Limits:
    """`None` is no limit."""

    max_trials: int | None
    max_seconds: float | None
    max_gpu_hours: float | None
    max_failed_trials: int | None


@dataclass(frozen=True)
class Progress:
    """The state of an experiment's trials.

    `created` counts those of the search, and `confirmation_count` the others. `any_started`: at least one has reported.
    `any_succeeded`: at least one completed, ran until its own time limit, was pruned or is paused, or is a winner that
    is confirmed. `any_outlasts`: a running trial has reported, and is older than the newest of the failed ones that
    `repeated_failure` is about. `any_in_first_attempt`: at least one runs its first attempt now. `is_space_exhausted`:
    every configuration has been tried. `gpu_hours`: of all attempts, as far as `Limits.max_gpu_hours` needs them.
    """

    created: int
    confirmation_count: int
    queued: int
    running: int
    failed: int
    any_started: bool
    any_succeeded: bool
    any_outlasts: bool
    any_in_first_attempt: bool
    repeated_failure: RepeatedFailure | None
    elapsed_seconds: float
    gpu_hours: float = 0.0
    is_space_exhausted: bool = False

    @property
    def have_all_failed(self) -> bool:
        return 0 < self.failed == self.created


def reason_to_end(limits: Limits, progress: Progress) -> EndReason | None:
    """Why no further trial should start; None while the experiment has more to do."""
    if (reason := _systematic_failure(limits, progress)) is not None:
        return reason
    if (reason := _passed_limit(limits, progress)) is not None:
        return reason
    if progress.queued or progress.running:
        return None
    are_all_created = limits.max_trials is not None and progress.created >= limits.max_trials
    if progress.have_all_failed and (are_all_created or progress.is_space_exhausted):
        return EndReason.TOO_MANY_FAILURES
    return EndReason.MAX_TRIALS if are_all_created else None


def _passed_limit(limits: Limits, progress: Progress) -> EndReason | None:
    """The first of the limits that end an experiment while trials are queued or running."""
    if limits.max_failed_trials is not None and progress.failed > limits.max_failed_trials:
        return EndReason.TOO_MANY_FAILURES
    if limits.max_seconds is not None and progress.elapsed_seconds >= limits.max_seconds:
        return EndReason.MAX_SECONDS
    if limits.max_gpu_hours is not None and progress.gpu_hours >= limits.max_gpu_hours:
        return EndReason.MAX_GPU_HOURS
    return None


def _systematic_failure(limits: Limits, progress: Progress) -> EndReason | None:
    """The reason if all trials fail in the same way. With `max_failed_trials`, only those that cannot start count."""
    failure, most = progress.repeated_failure, math.inf if limits.max_trials is None else limits.max_trials
    if failure is None or not (failure.is_conclusive or failure.count >= most):
        return None
    if failure.first.kind is FailureKind.CANNOT_START:
        if not progress.any_started:
            return EndReason.CANNOT_START
        if failure.count < min(FAILURES_TO_GIVE_UP[FailureKind.USER_ERROR], most):
            return None
    any_fares_better = progress.any_succeeded or progress.any_outlasts
    if never_started(failure.first):  # trials on healthy nodes may be running and have reported nothing yet
        any_fares_better = progress.any_started or progress.any_in_first_attempt
    return None if any_fares_better or limits.max_failed_trials is not None else EndReason.TOO_MANY_FAILURES
