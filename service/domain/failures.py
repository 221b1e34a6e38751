"""The kinds of failures: which of them are retried, from which budget, and when they fail the whole experiment."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal

from trainer.wire import Failure, FailureKind

Budget = Literal["infrastructure", "start", "user", "none"]

BUDGETS: dict[FailureKind, Budget] = {
    FailureKind.LOST: "infrastructure",
    FailureKind.PREEMPTED: "none",
    FailureKind.USER_ERROR: "user",
}
"""The budget that a retry is charged to. Kinds that are not listed are never retried automatically."""

MAX_LOSSES = 5
"""Losses from the same checkpoint before a trial fails: one that crashes its node must not be retried without end."""

MAX_LOST_STARTS = 10
"""Losses before any worker of the trial ran. The budget is larger because broken slots may lose a trial repeatedly.
But a trial that cannot start, for lack of memory or for a variable in its environment, must fail."""

MIN_LOST_START_INTERVAL = timedelta(seconds=10)
"""Lost starts at shorter intervals count as one. When a Ray head restarts, a cluster may have many broken
slots at the same time, and each of them loses its trial within a second. With this interval, a trial fails only after
it could not start for MAX_LOST_STARTS times as long, which is longer than a head takes to restart."""

FAILURES_TO_GIVE_UP: dict[FailureKind, int] = {
    FailureKind.LOST: 3,
    FailureKind.CANNOT_START: 3,
    FailureKind.USER_ERROR: 5,
    FailureKind.SILENT: 5,
}
"""How many of the first trials must fail in the same way, with no trial that fared better, to fail the experiment: its
code is wrong. Of lost trials, only those count whose workers never ran."""


@dataclass(frozen=True)
class Retry:
    reason: str


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass(frozen=True)
class CommonFailure:
    """The first `count` failed trials failed in the same way as the very first one."""

    first: Failure
    count: int

    @property
    def is_conclusive(self) -> bool:
        """Whether `count` reaches the limit of FAILURES_TO_GIVE_UP."""
        lost_while_running = self.first.kind is FailureKind.LOST and self.first.began
        return not lost_while_running and self.count >= FAILURES_TO_GIVE_UP.get(self.first.kind, sys.maxsize)


def common_failure(failures: Sequence[Failure]) -> CommonFailure | None:
    """`failures` are those of the first failed trials, oldest first. The rank that failed makes no difference."""
    if not failures:
        return None
    same = takewhile(lambda failure: _signature(failure) == _signature(failures[0]), failures)
    return CommonFailure(failures[0], sum(1 for _ in same))


def never_started(failure: Failure) -> bool:
    """Whether the attempt was lost before any of its workers ran."""
    return failure.kind is FailureKind.LOST and not failure.began


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


def decide_retry(failure: Failure, earlier: Sequence[Failure], max_retries: int) -> Retry | GiveUp:
    """Whether a trial is retried after an attempt that ended with `failure`.

    `earlier` are the `counted_failures` of earlier attempts; `max_retries` is the experiment's limit for user errors.
    """
    budget, kind = _budget_of(failure), failure.kind.value
    if budget is None:
        return GiveUp(kind)
    if budget == "none":
        return Retry(kind)
    spent = sum(_budget_of(other) == budget for other in earlier)
    limits = {"infrastructure": MAX_LOSSES, "start": MAX_LOST_STARTS, "user": max_retries}
    return Retry(kind) if spent < limits[budget] else GiveUp(kind)


def _signature(failure: Failure) -> tuple[FailureKind, str]:
    """What two equal failures share. Ray's message for workers that never ran names processes, so it is left out."""
    if never_started(failure):
        return failure.kind, ""
    return failure.kind, re.sub(r"\brank \d+", "rank", failure.message)


def _budget_of(failure: Failure) -> Budget | None:
    """None when the failure is never retried."""
    if never_started(failure):
        return "start"
    return BUDGETS.get(failure.kind)
