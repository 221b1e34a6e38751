"""Ends what time has ended: silent attempts, trials and experiments over their limits."""

import time
from collections.abc import Callable
from datetime import datetime

from service.operations.attempts.lease_expiry import (
    Hearing,
    enforce_time_limits,
    extend_all_leases,
    release_silent_names,
    rescue_lost_attempts,
)
from service.runtime.context import Context


def seconds_awake_or_not() -> float:
    """Counts on while the machine sleeps, which `time.monotonic` does not on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Rescuing:
    """Only who could have been heard is judged by its silence.

    A service that starts, whose database was away or hung, or that was suspended may have been deaf for as long as that
    took: it first gives every holder a whole lease. `clock` counts seconds.
    """

    name = "rescuing"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context, clock: Callable[[], float] = seconds_awake_or_not) -> None:
        self._context = context
        self._clock = clock
        self._looked_at: float | None = None
        self._heard_since: datetime | None = None

    def run_once(self) -> int:
        began = self._clock()
        if self._looked_at is None or self._may_have_missed_one(self._looked_at):
            self._heard_since = extend_all_leases(self._context)
        hearing = Hearing(self._heard_since, still=lambda: not self._may_have_missed_one(began))
        parts = (rescue_lost_attempts, release_silent_names, enforce_time_limits)
        done = sum(part(self._context, hearing) for part in parts)
        self._looked_at = began
        return done

    def _may_have_missed_one(self, since: float) -> bool:
        """Holders are heard three times per lease; a pass or two may be late without one of them missed."""
        return self._clock() - since > max(self._context.settings.lease_seconds / 3, 3 * self.every)
