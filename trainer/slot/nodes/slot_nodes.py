"""The Ray nodes that a slot uses, which of them it has lost, which go away soon, and which it is not to use now."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.slot.nodes.withheld_nodes import WithheldNodes


@dataclass
class SlotNodes:
    """Nodes are Ray's node ids. `own` is the one of the slot's process, `workers` those on which it has had workers.

    `placement_group`: the one that the newest workers have told. `failed_disks`: the number and the reason of the
    newest failure of each node whose disk an attempt here has found full or failing. No new attempt uses those
    `withheld`.
    """

    own: str
    workers: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    placement_group: str | None = None
    failed_disks: dict[str, tuple[int, str]] = field(default_factory=dict)
    withheld: WithheldNodes = field(default_factory=WithheldNodes)
    _failed_disk_count: int = 0
    _of_group: set[str] = field(default_factory=set)
    _drain_deadlines: dict[str, float] = field(default_factory=dict)

    def add_worker(self, node: str, placement_group: str | None) -> None:
        """A worker has started there. Those of another placement group have ended by then."""
        if placement_group != self.placement_group:
            self.group_ended()
        self.placement_group = placement_group
        self.workers.add(node)
        self._of_group.add(node)

    def group_ended(self) -> None:
        """The present worker group and its placement group are no longer there."""
        self._of_group = set()

    @property
    def used(self) -> set[str]:
        """The slot's own node and those of its present worker group, also while this waits for the next attempt."""
        return {self.own, *self._of_group}

    def add_failed_disks(self, failed: Mapping[str, str]) -> None:
        """Withhold these nodes; `failed` has the reasons."""
        for node, reason in failed.items():
            self.withheld.add(node, reason)
            self._failed_disk_count += 1
            self.failed_disks[node] = self._failed_disk_count, reason

    def failed_disks_now(self) -> list[dict[str, Any]]:
        """Return those that are still withheld, as `SlotStatus` has them."""
        failed, left = dict(self.failed_disks), self.withheld.seconds_left()
        return [
            {"node": node, "number": number, "reason": reason, "seconds": left[node]}
            for node, (number, reason) in failed.items()
            if node in left
        ]

    @property
    def uses_withheld(self) -> bool:
        """Whether the present worker group, which another attempt could use, has a worker on a withheld node."""
        return any(node in self.withheld for node in set(self._of_group))

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
