"""Failures have kinds; the kind decides whether a trial is tried again, and on whose budget."""

from dataclasses import dataclass
from typing import Literal

from trainer.wire import FailureKind

Budget = Literal["infrastructure", "user", "none"]

BUDGETS: dict[FailureKind, Budget] = {
    FailureKind.LOST: "infrastructure",
    FailureKind.PREEMPTED: "none",
    FailureKind.USER_ERROR: "user",
}
"""Who pays for a retry. Kinds that are not here are never tried again by themselves."""

MAX_LOSSES = 5
"""Losses of one trial before it fails: a trial that takes its node down must not do so for ever."""

FAILURES_TO_GIVE_UP = 3
"""As many first trials that cannot start, with none that could, fail the experiment."""


@dataclass(frozen=True)
class Retry:
    reason: str


@dataclass(frozen=True)
class GiveUp:
    reason: str


def after_failure(kind: FailureKind, earlier: list[FailureKind], max_retries: int) -> Retry | GiveUp:
    """What becomes of a trial whose attempt failed with `kind`, after attempts that failed with `earlier` kinds."""
    budget = BUDGETS.get(kind)
    if budget is None:
        return GiveUp(kind.value)
    if budget == "none":
        return Retry(kind.value)
    spent = sum(BUDGETS.get(other) == budget for other in earlier)
    limit = MAX_LOSSES if budget == "infrastructure" else max_retries
    return Retry(kind.value) if spent < limit else GiveUp(kind.value)
