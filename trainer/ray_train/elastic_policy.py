"""How many workers an elastic group has: Ray's own scaling policy, kept to the room that there is.

Ray's policy counts the nodes' total resources, less what other runs of Ray Train and Ray Data have asked for. It does
not see what anything else holds, and gives up a healthy group for room that it cannot get. So its decisions count only
where the resources are free. It does not act on them, either: the attempt leaves at its next checkpoint, and the next
one starts with the new number.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, NoopDecision, ResizeDecision

from trainer.ray_train.cluster_state import (
    available_resources_per_node,
    drain_deadlines,
    node_labels,
    pending_groups,
    reserved_by,
    total_resources_per_node,
)
from trainer.reservation import rest_beside
from trainer.resources import Room, WorkerGroup, release


class ResourcesTimeout(RuntimeError):
    """The resources of a worker group did not become free in time."""


@dataclass(frozen=True)
class Elasticity:
    """What a run of an elastic group needs. `lost_nodes` no longer answer, even if Ray still lists them.

    `on_resize_possible(workers)` is called when so many workers could run instead, perhaps repeatedly. The group starts
    as `workers`; a later one would start as `next_workers()`, because other nodes may be withheld by then.
    """

    workers: WorkerGroup
    lost_nodes: frozenset[str]
    on_resize_possible: Callable[[int], None]
    next_workers: Callable[[], WorkerGroup]

    def size(self, placement_group: Any | None) -> int:
        """How many workers can start, with what the placement group holds."""
        return self._size_of(self.workers, placement_group)

    def next_size(self, placement_group: Any | None) -> int:
        """How many workers could start in place of those that run."""
        return self._size_of(self.next_workers(), placement_group)

    def _size_of(self, workers: WorkerGroup, placement_group: Any | None) -> int:
        """How many of these workers there can be.

        Without what other groups wait for: one that needs many workers would never start if each that is freed were
        taken by an elastic group.
        """
        gone = self.lost_nodes | drain_deadlines().keys()
        free = {node: dict(has) for node, has in available_resources_per_node().items() if node not in gone}
        for node, bundle in reserved_by(placement_group):
            release(free, node, bundle)
        labels = node_labels()
        if waiting := pending_groups(placement_group):
            total = total_resources_per_node()
            for group in waiting:
                free = rest_beside(group, free, total, labels)
        return workers.size_on([Room(has, labels.get(node, {})) for node, has in free.items()])

    def is_whole(self, placement_group: Any) -> bool:
        """Whether all that the placement group reserves is on living nodes."""
        nodes = available_resources_per_node().keys() - self.lost_nodes
        held = reserved_by(placement_group)
        return bool(held) and all(node in nodes for node, _ in held)


class RoomPolicy(ElasticScalingPolicy):  # type: ignore[misc]
    """`placement_group()` returns the one that the group keeps from earlier runs, or None.

    `start_seconds`: how long to wait until the smallest group fits; the policy then raises ResourcesTimeout, as it does
    when `is_cancelled()`.
    """

    def __init__(
        self,
        scaling_config: Any,
        elasticity: Elasticity,
        placement_group: Callable[[], Any],
        is_cancelled: Callable[[], bool],
        start_seconds: float,
    ) -> None:
        super().__init__(scaling_config)
        self._elasticity = elasticity
        self._placement_group = placement_group
        self._is_cancelled = is_cancelled
        self._start_by = time.monotonic() + start_seconds
        self._size = 0

    def make_decision_for_non_running_worker_group(self) -> Any:
        """As many workers as there is room for. The controller asks again after a NoopDecision."""
        if self._is_cancelled() or time.monotonic() > self._start_by:
            raise ResourcesTimeout
        self._maybe_send_resource_request()
        self._size = self._elasticity.size(self._placement_group())
        if self._size < self._elasticity.workers.min_workers:
            return NoopDecision()
        return self._get_resize_decision(self._size)

    def make_decision_for_running_worker_group(self, *args: Any, **kwargs: Any) -> Any:
        """Ray's decision, at Ray's interval, is for the attempt; the running group stays as it is."""
        decision = super().make_decision_for_running_worker_group(*args, **kwargs)
        if isinstance(decision, ResizeDecision):
            self._elasticity.on_resize_possible(decision.num_workers)
        return NoopDecision()

    def _count_possible_workers(self, reserved_resources: Any) -> int:
        """The number of workers that a running group could have: never fewer than it has."""
        promised: int = super()._count_possible_workers(reserved_resources)
        return max(self._size, min(promised, self._elasticity.next_size(self._placement_group())))
