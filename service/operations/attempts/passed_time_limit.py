"""Which of its time limits an attempt has passed.

They count from the first line of the training function, so that the start of workers takes nothing from them.
"""

from dataclasses import dataclass

from service.specification.spec_sections import LimitsSpec


@dataclass(frozen=True)
class OutOfTime:
    """The attempt is to leave at its next report or, with `is_kill`, to be killed."""

    reason: str
    is_kill: bool = False


def out_of_time(limits: LimitsSpec, seconds: float, tolerance: float = 0.0) -> OutOfTime | None:
    """Which limit an attempt has passed that has trained for so long; `tolerance` is a fraction of the limit."""
    leave, kill = limits.max_trial_seconds, limits.kill_trial_after_seconds
    if kill is not None and seconds >= kill * (1 - tolerance):
        reason = f"was killed after {seconds:.0f} s (limits.kill_trial_after_seconds is {kill:g})"
        return OutOfTime(reason, is_kill=True)
    if leave is not None and seconds >= leave * (1 - tolerance):
        return OutOfTime(f"ran for {seconds:.0f} s (limits.max_trial_seconds is {leave:g})")
    return None
