"""Ends what time has ended: silent attempts, trials and experiments over their limits."""

import time
from collections.abc import Callable
from datetime import datetime

from service.operations.context import Context
from service.operations.rescuing import enforce_time_limits, extend_all_leases, rescue_lost_attempts


class Rescuing:
    """Only who could have been heard is judged by its silence.

    A service that starts, that had no database, or that was suspended may have been deaf for as long as that took: it
    first gives every holder a whole lease. `clock` counts seconds.
    """

    name = "rescuing"
    every = 1.0

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._looked_at: float | None = None
        self._heard_since: datetime | None = None

    def run_once(self) -> int:
        if self._was_deaf():
            self._heard_since = extend_all_leases(self._context)
        done = rescue_lost_attempts(self._context) + enforce_time_limits(self._context, self._heard_since)
        self._looked_at = self._clock()
        return done

    def _was_deaf(self) -> bool:
        """Holders are heard three times per lease; a pass or two may be late without one of them missed."""
        longest = max(self._context.settings.lease_seconds / 3, 3 * self.every)
        return self._looked_at is None or self._clock() - self._looked_at > longest
