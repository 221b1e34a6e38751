"""For how long an attempt has trained, and which of its time limits it has passed.

They count from the first line of the training function, so that the start of workers takes nothing from them.
"""

from dataclasses import dataclass
from datetime import datetime

from service.domain.attempt_holders import is_caller
from service.specification.spec_parts import LimitsSpec
from service.store.tables import AttemptRow


@dataclass(frozen=True)
class OutOfTime:
    """The attempt is to leave at its next report or, with `is_kill`, to be killed."""

    reason: str
    is_kill: bool = False


def function_began_at(attempt: AttemptRow) -> datetime | None:
    """When the training function began; None as long as its holder has not told.

    For a caller that asked for the trial itself, it is the time of the answer, unless that caller tells another.
    """
    if attempt.began_at is not None:
        return attempt.began_at
    return attempt.started_at if is_caller(attempt.holder) else None


def out_of_time(limits: LimitsSpec, seconds: float, tolerance: float = 0.0) -> OutOfTime | None:
    """Which limit an attempt has passed that has trained for so long; `tolerance` is a fraction of the limit."""
    leave, kill = limits.max_trial_seconds, limits.kill_trial_after_seconds
    if kill is not None and seconds >= kill * (1 - tolerance):
        reason = f"was killed after {seconds:.0f} s (limits.kill_trial_after_seconds is {kill:g})"
        return OutOfTime(reason, is_kill=True)
    if leave is not None and seconds >= leave * (1 - tolerance):
        return OutOfTime(f"ran for {seconds:.0f} s (limits.max_trial_seconds is {leave:g})")
    return None
