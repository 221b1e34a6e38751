"""The Ray nodes that a slot uses, which of them it has lost, and which go away soon."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class SlotNodes:
    """Nodes are Ray's node ids. `own` is the one of the slot's process, `workers` those on which it has had workers."""

    own: str
    workers: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    _drain_deadlines: dict[str, float] = field(default_factory=dict)

    @property
    def used(self) -> set[str]:
        return {self.own, *self.workers}

    def drain(self, nodes: Iterable[str], grace_seconds: float) -> None:
        """These nodes go away in `grace_seconds`, also if the slot uses none of them yet. The first deadline counts."""
        for node in nodes:
            self._drain_deadlines.setdefault(node, time.monotonic() + grace_seconds)

    @property
    def drained(self) -> set[str]:
        """The used nodes that go away."""
        return self.used & self._drain_deadlines.keys()

    def seconds_left(self) -> float | None:
        """Until the first of the used nodes goes away; None if none of them does."""
        deadlines = [self._drain_deadlines[node] for node in self.drained]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
