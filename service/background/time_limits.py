"""The loop that ends trials and experiments that exceed their limits in time or in GPU hours."""

from service.background.attempt_loop_base import AttemptLoopBase
from service.operations.time_limits import enforce_time_limits


class TimeLimits(AttemptLoopBase):
    """Apart from expired leases: one experiment whose limits are slow to apply delays no lost attempt of another."""

    name = "time limits"

    def run_once(self) -> int:
        return self._do(enforce_time_limits)
