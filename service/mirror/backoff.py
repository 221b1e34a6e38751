"""Backoff per key: after a failure a key rests for a second, then twice as long each time, up to a minute."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

MIN_SECONDS = 1.0
MAX_SECONDS = 60.0


@dataclass(frozen=True)
class _Rest:
    until: float
    seconds: float


class Backoff:
    """`clock` counts seconds from any start, as `time.monotonic` does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def failed(self, key: str, at_least: float = MIN_SECONDS) -> bool:
        """Return whether this is the key's first failure since its last success. It rests for `at_least` seconds."""
        before = self._rests.get(key)
        seconds = max(at_least, min(MAX_SECONDS, before.seconds * 2) if before else MIN_SECONDS)
        self._rests[key] = _Rest(self._clock() + seconds, seconds)
        return before is None

    def succeeded(self, key: str) -> None:
        self._rests.pop(key, None)

    def keep_only(self, keys: Collection[str]) -> None:
        """Drop the rests of other keys."""
        self._rests = {key: rest for key, rest in self._rests.items() if key in keys}

    def is_resting(self, key: str) -> bool:
        rest = self._rests.get(key)
        return rest is not None and self._clock() < rest.until
