"""Which access tokens were used lately, noted by calls and stored now and then: a call must not wait for a write."""

import time
from collections.abc import Callable, Iterable
from threading import Lock

STORE_SECONDS = 60.0
"""The least time between two writes of the last use of a token."""


class TokenUse:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._noted_at: dict[str, float] = {}
        self._unstored: set[str] = set()

    def note(self, name: str) -> None:
        """A call with this token was accepted. From any thread."""
        now = self._clock()
        with self._lock:
            if now - self._noted_at.get(name, -STORE_SECONDS) >= STORE_SECONDS:
                self._noted_at[name] = now
                self._unstored.add(name)

    def take_unstored(self) -> set[str]:
        """Return the names whose use is to be stored, once."""
        with self._lock:
            names, self._unstored = self._unstored, set()
            return names

    def put_back(self, names: Iterable[str]) -> None:
        """Put names back that could not be stored, for the next attempt."""
        with self._lock:
            self._unstored.update(names)
