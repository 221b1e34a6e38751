"""What a rank waits for while its training function runs, in seconds by phase. The rest of the time is training."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DATA, CHECKPOINTING, REPORTING = "data", "checkpointing", "reporting"
WAITS = (DATA, CHECKPOINTING, REPORTING)
RUNNING = "running"
"""In the fields of a rank whose function has ended: for how long it ran."""

Clock = Callable[[], float]


class PhaseTimes:
    """Adds up the waits of the thread that runs the training function.

    `data_seconds()` is what the thread has waited for batches of Ray Data. `waits` is False for a function whose work
    continues while it reports.
    """

    def __init__(self, data_seconds: Clock = lambda: 0.0, *, waits: bool = True, clock: Clock = time.monotonic) -> None:
        self._data_seconds = data_seconds
        self._waits = waits
        self._clock = clock
        self._seconds = dict.fromkeys(WAITS, 0.0)
        self._since: dict[str, float] = {}
        self._began_at: float | None = None

    def begin(self) -> None:
        """The function is about to be called."""
        self._began_at = self._clock()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """The function waits, for this one of `WAITS`."""
        started_at = self._since[phase] = self._clock()
        try:
            yield
        finally:
            self._since.pop(phase, None)
            if self._waits:
                self._seconds[phase] += self._clock() - started_at

    def since(self, phase: str) -> float | None:
        """When the present wait for this phase has begun, by the clock; None without one. From any thread."""
        return self._since.get(phase)

    def so_far(self) -> dict[str, float]:
        """The seconds of each of `WAITS`."""
        return {**self._seconds, DATA: self._seconds[DATA] + self._data_seconds()}

    def at_end(self) -> dict[str, float]:
        """`so_far`, with the seconds that the function ran; empty if it was never called."""
        return {} if self._began_at is None else {**self.so_far(), RUNNING: self._clock() - self._began_at}
