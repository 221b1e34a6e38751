"""What has failed is left alone for a while: a second, then twice as long each time, up to a minute."""

from collections.abc import Callable
from dataclasses import dataclass

SHORTEST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class _Pause:
    until: float
    seconds: float


class Patience:
    """`clock` counts seconds from anywhere, as `time.monotonic` does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def failed(self, who: str) -> None:
        before = self._pauses.get(who)
        seconds = min(LONGEST_SECONDS, before.seconds * 2) if before else SHORTEST_SECONDS
        self._pauses[who] = _Pause(self._clock() + seconds, seconds)

    def succeeded(self, who: str) -> None:
        self._pauses.pop(who, None)

    def waits(self, who: str) -> bool:
        pause = self._pauses.get(who)
        return pause is not None and self._clock() < pause.until
