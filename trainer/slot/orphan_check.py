"""Whether a slot without work still has an agent."""

import time
from collections.abc import Callable


class OrphanCheck:
    """A slot has no agent when two checks in a row find that none has asked for its status for `seconds`.

    One is not enough: when the process was frozen, calls of the agent wait to be read, perhaps with an assignment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._asked_at = clock()
        self._is_late = False

    def asked(self) -> None:
        """An agent has asked for the slot's status. May be called by another thread."""
        self._asked_at, self._is_late = self._clock(), False

    @property
    def interval(self) -> float:
        """Seconds from check to check."""
        return self._seconds / 6

    def is_orphaned(self) -> bool:
        """To be called while the slot has no work."""
        was_late = self._is_late
        self._is_late = self._clock() - self._asked_at > self._seconds
        return was_late and self._is_late
