"""Which failed attempts of a trial are followed by another one, and what that is charged to."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from trainer.wire import Failure, FailureKind

Budget = Literal["infrastructure", "checkpoint", "start", "user", "none"]

BUDGETS: dict[FailureKind, Budget] = {
    FailureKind.LOST: "infrastructure",
    FailureKind.PREEMPTED: "none",
    FailureKind.USER_ERROR: "user",
}
"""The budget that a retry is charged to. Kinds that are not listed are never retried automatically."""

MAX_LOSSES = 5
"""Losses from checkpoints of the same step before a trial fails: one that crashes its node must not be retried without
end."""

MAX_MISSES = 5
"""Attempts in a row that have not found the checkpoint to resume from, before a trial fails. They count on their own: a
trial that goes on from an older checkpoint may be lost from there as often as any other."""

MAX_LOST_STARTS = 10
"""Losses before any worker of the trial ran. The budget is larger because broken slots may lose a trial repeatedly.
But a trial that cannot start, for lack of memory or for a variable in its environment, must fail."""

MIN_LOST_START_INTERVAL = timedelta(seconds=10)
"""Lost starts at shorter intervals count as one. When a Ray head restarts, a cluster may have many broken
slots at the same time, and each of them loses its trial within a second. With this interval, a trial fails only after
it could not start for MAX_LOST_STARTS times as long, which is longer than a head takes to restart."""


def never_started(failure: Failure) -> bool:
    """Whether the attempt was lost before any of its workers ran."""
    return failure.kind is FailureKind.LOST and not failure.began


def is_miss(failure: Failure) -> bool:
    """Whether the attempt was lost because the storage did not have the checkpoint to resume from."""
    return failure.kind is FailureKind.LOST and failure.began and failure.is_checkpoint_missing


def counted_failures(earlier: Sequence[tuple[Failure, datetime]], now: datetime) -> list[Failure]:
    """The earlier failures of a trial that fails again `now`, without lost starts that count as one with a later one.

    `earlier` is oldest first; see MIN_LOST_START_INTERVAL.
    """
    kept, later = [], now
    for failure, at in reversed(earlier):
        if never_started(failure):
            if later - at < MIN_LOST_START_INTERVAL:
                continue
            later = at
        kept.append(failure)
    return kept[::-1]


def may_retry(failure: Failure, earlier: Sequence[Failure], max_retries: int) -> bool:
    """Whether a trial is retried after an attempt that ended with `failure`.

    `earlier` are the `counted_failures` of earlier attempts; `max_retries` is the experiment's limit for user errors.
    """
    budget = _budget_of(failure)
    if budget is None:
        return False
    if budget == "none":
        return True
    spent = sum(_budget_of(other) == budget for other in earlier)
    limits = {
        "infrastructure": MAX_LOSSES,
        "checkpoint": MAX_MISSES,
        "start": MAX_LOST_STARTS,
        "user": max_retries,
    }
    return spent < limits[budget]


def _budget_of(failure: Failure) -> Budget | None:
    """None when the failure is never retried."""
    if never_started(failure):
        return "start"
    if is_miss(failure):
        return "checkpoint"
    return BUDGETS.get(failure.kind)
