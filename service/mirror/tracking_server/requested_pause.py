"""The pause that MLflow, or a proxy before it, asks for with a Retry-After: no call is made before it has passed."""

import math
import time
from collections.abc import Callable

from service.mirror.mlflow_errors import MlflowPaused

MAX_SECONDS = 60.0
"""Longer ones are cut to this, so that the mirror continues soon after a mistaken one."""


class RequestedPause:
    """One for all loops that call MLflow. `clock` counts seconds from any start, as `time.monotonic` does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = -math.inf

    def begin(self, seconds: float) -> None:
        self._ends_at = max(self._ends_at, self._clock() + min(seconds, MAX_SECONDS))

    def check(self) -> None:
        """Raises MlflowPaused during the pause."""
        left = self._ends_at - self._clock()
        if left > 0:
            raise MlflowPaused(f"MLflow has asked for a pause (Retry-After), of which {left:.0f} s are left")
