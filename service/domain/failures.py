"""Failures have kinds; the kind decides whether a trial is tried again, and on whose budget."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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

MAX_LOST_STARTS = 50
"""Losses before any of its workers ran. The trial can't have brought these about: it is only next in line for slots
that are broken, of which a cluster may have many at once. But what never starts must not be tried for ever either."""

FAILURES_TO_GIVE_UP: dict[FailureKind, int] = {
    FailureKind.CANNOT_START: 3,
    FailureKind.USER_ERROR: 5,
    FailureKind.SILENT: 5,
}
"""As many first trials that fail alike, with none that fared better, fail the experiment: its code is wrong."""


@dataclass(frozen=True)
class Retry:
    reason: str


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass(frozen=True)
class Alike:
    """The first `count` trials that failed did so with one kind and one message."""

    kind: FailureKind
    message: str
    count: int

    @property
    def is_enough(self) -> bool:
        return self.count >= FAILURES_TO_GIVE_UP.get(self.kind, sys.maxsize)


def failed_alike(failures: Sequence[tuple[FailureKind, str]]) -> Alike | None:
    """`failures`: kind and message of the first trials, which failed. Which rank spoke makes no difference."""
    if not failures:
        return None
    kind, message = failures[0]
    same = takewhile(lambda one: (one[0], _of_any_rank(one[1])) == (kind, _of_any_rank(message)), failures)
    return Alike(kind, message, sum(1 for _ in same))


def _of_any_rank(message: str) -> str:
    return re.sub(r"\brank \d+", "rank", message)


def budget_of(failure: Failure) -> Budget | None:
    """None: it is never tried again."""
    if failure.kind is FailureKind.LOST and not failure.began:
        return "start"
    return BUDGETS.get(failure.kind)


def after_failure(failure: Failure, earlier: Sequence[Failure], max_retries: int) -> Retry | GiveUp:
    """What becomes of a trial whose attempt failed so, after attempts with these `earlier` failures."""
    budget, kind = budget_of(failure), failure.kind.value
    if budget is None:
        return GiveUp(kind)
    if budget == "none":
        return Retry(kind)
    spent = sum(budget_of(other) == budget for other in earlier)
    limits = {"infrastructure": MAX_LOSSES, "start": MAX_LOST_STARTS, "user": max_retries}
    return Retry(kind) if spent < limits[budget] else GiveUp(kind)
