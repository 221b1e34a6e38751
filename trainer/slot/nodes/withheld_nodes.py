"""The Ray nodes that get no new attempt for a while, because their disk is full or fails."""

import time
from collections.abc import Callable

WITHHELD_SECONDS = 300.0
"""How long a node is withheld: time to free space, and seldom enough for a trial to try a disk that stays full."""


class WithheldNodes:
    """Nodes are Ray's node ids. Any thread may call it. `version` counts what was added."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.version = 0
        self._until: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

    def add(self, node: str, reason: str = "", seconds: float = WITHHELD_SECONDS) -> None:
        """Withhold it for so long from now on, unless it is withheld for longer already."""
        until = self._clock() + seconds
        if until > self._until.get(node, 0.0):
            self._reasons[node], self._until[node] = reason, until
            self.version += 1

    def __contains__(self, node: str) -> bool:
        return self._until.get(node, 0.0) > self._clock()

    def reasons(self) -> dict[str, str]:
        """The nodes that are withheld now, each with the reason."""
        return {node: self._reasons[node] for node in self.seconds_left()}

    def seconds_left(self) -> dict[str, float]:
        """The nodes that are withheld now, and for how long."""
        now, until = self._clock(), dict(self._until)
        return {node: end - now for node, end in until.items() if end > now}
