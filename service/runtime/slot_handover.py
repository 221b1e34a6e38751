"""Keeps a trial that a warm slot is about to get from being claimed by an agent, which would start a cold one."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Handover:
    """Experiments of which a slot has just finished a trial and waits for the next.

    A hint within this process only: whoever misses it gets a trial all the same.
    """

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._guard = threading.Lock()

    @contextmanager
    def of(self, experiment_id: str) -> Iterator[None]:
        with self._guard:
            self._under_way[experiment_id] += 1
        try:
            yield
        finally:
            with self._guard:
                self._under_way[experiment_id] -= 1

    def count(self, experiment_id: str) -> int:
        with self._guard:
            return self._under_way[experiment_id]
