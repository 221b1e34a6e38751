"""Ends what time has ended: silent attempts, trials and experiments over their limits."""

from service.operations.context import Context
from service.operations.rescuing import enforce_time_limits, extend_all_leases, rescue_lost_attempts


class Rescuing:
    name = "rescuing"
    every = 1.0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._extended = False

    def run_once(self) -> int:
        if not self._extended:
            extend_all_leases(self._context)
            self._extended = True
        return rescue_lost_attempts(self._context) + enforce_time_limits(self._context)
