"""Reserves freed capacity for warm slots: an agent's claim would start a cold slot for the same trial."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class SlotHandover:
    """Counts, by experiment, the slots that have finished a trial and wait for their next one.

    The count covers this process only and is a hint: a claim that does not see it is still answered correctly.
    """

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, experiment_id: str) -> Iterator[None]:
        with self._lock:
            self._waiting[experiment_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[experiment_id] -= 1

    def waiting_count(self, experiment_id: str) -> int:
        with self._lock:
            return self._waiting[experiment_id]
