"""Since when a thread waits for the next batch of a dataset. Ray's own timer counts a wait only when it is over."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.data._internal.stats import Timer


class WaitTimer(Timer):  # type: ignore[misc]
    """Stands in for Ray's timer of these waits. `since`: when the present one began, by `time.monotonic()`."""

    def __init__(self) -> None:
        super().__init__()
        self.since: float | None = None

    @contextmanager
    def timer(self) -> Iterator[Any]:
        self.since = time.monotonic()
        try:
            with super().timer() as span:
                yield span
        finally:
            self.since = None


def timing_waits(iterator: Any) -> WaitTimer:
    """Returns the timer that the iterator over a shard has from now on."""
    timer = WaitTimer()
    if (stats := getattr(iterator, "_iter_stats", None)) is not None:
        stats.iter_total_blocked_s = timer
    return timer
