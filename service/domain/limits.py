"""When an experiment is over, and whether it may start another trial: pure functions of its counts."""

from dataclasses import dataclass

from service.domain.failures import CommonFailure, never_started
from service.domain.statuses import EndReason
from trainer.wire import FailureKind


@dataclass(frozen=True)
class Limits:
    """`None` is no limit; durations are seconds."""

    max_trials: int
    parallelism: int
    max_seconds: float | None
    max_failed_trials: int | None


@dataclass(frozen=True)
class Progress:
    """What there is of an experiment's trials.

    `created` counts all of them; `any_started`: some have reported; `any_well`: some completed, were pruned or paused;
    `any_at_first`: some are in their first attempt now.
    """

    created: int
    queued: int
    running: int
    failed: int
    any_started: bool
    any_well: bool
    any_at_first: bool
    alike: CommonFailure | None
    elapsed_seconds: float


def has_room(limits: Limits, *, created: int, queued: int, running: int) -> bool:
    """Whether one more trial may run: a queued one, or a new one."""
    return running < limits.parallelism and (queued > 0 or created < limits.max_trials)


def reason_to_end(limits: Limits, progress: Progress) -> EndReason | None:
    """Why no further trial should start; None while there is more to do."""
    if (reason := _code_is_wrong(limits, progress)) is not None:
        return reason
    if limits.max_failed_trials is not None and progress.failed > limits.max_failed_trials:
        return EndReason.TOO_MANY_FAILURES
    if limits.max_seconds is not None and progress.elapsed_seconds >= limits.max_seconds:
        return EndReason.MAX_SECONDS
    if progress.created >= limits.max_trials and not progress.queued and not progress.running:
        return EndReason.TOO_MANY_FAILURES if progress.failed == progress.created else EndReason.MAX_TRIALS
    return None


def _code_is_wrong(limits: Limits, progress: Progress) -> EndReason | None:
    """Whether all fail alike. Who says how many failures to bear means it, once trials have started."""
    alike = progress.alike
    if alike is None or not (alike.is_enough or alike.count >= limits.max_trials):
        return None
    if alike.first.kind is FailureKind.CANNOT_START:
        return None if progress.any_started else EndReason.CANNOT_START
    fares_better = progress.any_well
    if never_started(alike.first):  # the others may have had better luck with their nodes, and nothing to report yet
        fares_better = progress.any_started or progress.any_at_first
    return None if fares_better or limits.max_failed_trials is not None else EndReason.TOO_MANY_FAILURES
