"""Failures have kinds; the kind decides whether a trial is tried again, and on whose budget."""

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
"""Who pays for a retry. Kinds that are not here are never tried again by themselves."""

MAX_LOSSES = 5
"""Losses of one trial at one place before it fails: a trial that takes its node down must not do so for ever."""

MAX_LOST_STARTS = 10
"""Losses before any of its workers ran. The trial may only be next in line for slots that are broken. But what never
starts, for want of memory or for a variable in its environment, must not be tried for ever either."""

LOST_STARTS_APART = timedelta(seconds=10)
"""Lost starts that follow one another faster count as one. When a Ray head is started anew, a cluster may have many
broken slots at once, each of which loses what it is given within a second. So no trial fails by this before it could
not be started for MAX_LOST_STARTS times as long, which is longer than a head is away."""

FAILURES_TO_GIVE_UP: dict[FailureKind, int] = {
    FailureKind.LOST: 3,
    FailureKind.CANNOT_START: 3,
    FailureKind.USER_ERROR: 5,
    FailureKind.SILENT: 5,
}
"""As many first trials that fail alike, with none that fared better, fail the experiment: its code is wrong. Of those
that were lost, only such count whose workers never ran."""


@dataclass(frozen=True)
class Retry:
    reason: str


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass(frozen=True)
class CommonFailure:
    """The first `count` trials that failed did so as the very first one did."""

    first: Failure
    count: int

    @property
    def is_enough(self) -> bool:
        is_only_lost = self.first.kind is FailureKind.LOST and self.first.began
        return not is_only_lost and self.count >= FAILURES_TO_GIVE_UP.get(self.first.kind, sys.maxsize)


def common_failure(failures: Sequence[Failure]) -> CommonFailure | None:
    """`failures`: those of the first trials, which failed. Which rank spoke makes no difference."""
    if not failures:
        return None
    same = takewhile(lambda one: _likeness(one) == _likeness(failures[0]), failures)
    return CommonFailure(failures[0], sum(1 for _ in same))


def _likeness(failure: Failure) -> tuple[FailureKind, str]:
    """What Ray says of workers that never ran names their processes, and is another each time."""
    if never_started(failure):
        return failure.kind, ""
    return failure.kind, re.sub(r"\brank \d+", "rank", failure.message)


def never_started(failure: Failure) -> bool:
    return failure.kind is FailureKind.LOST and not failure.began


def counted_failures(earlier: Sequence[tuple[Failure, datetime]], now: datetime) -> list[Failure]:
    """Without the lost starts that count as one with a later one, or with what fails `now`."""
    kept, later = [], now
    for failure, at in reversed(earlier):
        if never_started(failure):
            if later - at < LOST_STARTS_APART:
                continue
            later = at
        kept.append(failure)
    return kept[::-1]


def budget_of(failure: Failure) -> Budget | None:
    """None: it is never tried again."""
    if never_started(failure):
        return "start"
    return BUDGETS.get(failure.kind)


def decide_retry(failure: Failure, earlier: Sequence[Failure], max_retries: int) -> Retry | GiveUp:
    """What becomes of a trial whose attempt failed so, after attempts with these `earlier` failures that count."""
    budget, kind = budget_of(failure), failure.kind.value
    if budget is None:
        return GiveUp(kind)
    if budget == "none":
        return Retry(kind)
    spent = sum(budget_of(other) == budget for other in earlier)
    limits = {"infrastructure": MAX_LOSSES, "start": MAX_LOST_STARTS, "user": max_retries}
    return Retry(kind) if spent < limits[budget] else GiveUp(kind)
