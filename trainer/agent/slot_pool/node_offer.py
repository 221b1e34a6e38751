"""What an agent offers for new trials: the nodes that take some, and what is free on them."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainer.agent.cluster import PlacementGroups, free_resources, total_resources
from trainer.agent.slot_pool.pooled_slot import PooledSlot, Scaling
from trainer.ray_train.cluster_state import node_labels
from trainer.reservation import rest_beside
from trainer.resources import (
    NodeResources,
    Placement,
    WorkerGroup,
    bundles_of,
    find_largest_placement,
    find_placement,
)
from trainer.slot.nodes.withheld_nodes import WithheldNodes


@dataclass(frozen=True)
class NodeOffer:
    """What the cluster has beside the agent's `slots`. Nodes that are `draining` or `withheld` get no new trial."""

    slots: Collection[PooledSlot]
    draining: Collection[str]
    withheld: WithheldNodes

    @cached_property
    def _labels(self) -> dict[str, dict[str, str]]:
        return node_labels()

    def nodes(self) -> list[dict[str, Any]]:
        """Each node that is not drained: total and free resources, labels. What idle slots reserve is free.

        Nothing is free on a node that is withheld, and it has the reason.
        """
        free, withheld = self._free_with_idle(), self.withheld.reasons()
        nodes = self._without_drained(total_resources())
        return [
            {"total": total, "free": free.get(node, {}), "labels": self._labels.get(node, {})}
            | ({"withheld": withheld[node]} if node in withheld else {})  # services of an earlier version refuse it
            for node, total in nodes.items()
        ]

    def placement(self, scaling: Scaling) -> Placement | None:
        """Where a new worker group would probably start; None if it does not fit beside what slots reserve."""
        return find_placement(bundles_of(scaling), self.unclaimed(PlacementGroups()), self._labels)

    def may_stay(self, slot: PooledSlot) -> bool:
        """Whether its workers have not ended, as after a failure, and are on nodes that get new trials."""
        held = PlacementGroups().of(slot.placement_group)
        return held is not None and all(node not in self.withheld for node, _ in held)

    def unclaimed(self, groups: PlacementGroups) -> NodeResources:
        """What is free at Ray, less what slots are about to reserve, or accumulate while their groups do not fit."""
        usable = self._without_drained(free_resources())
        free = {node: resources for node, resources in usable.items() if node not in self.withheld}
        waiting = [slot for slot in self.slots if slot.may_await_resources and groups.of(slot.placement_group) is None]
        for slot in waiting:
            placement = find_largest_placement(slot.scaling or {}, free, self._labels)
            if placement is not None:
                free = placement.free
            else:
                free = rest_beside(WorkerGroup.of(slot.scaling or {}), free, total_resources(), self._labels)
        return free

    def _free_with_idle(self) -> NodeResources:
        groups = PlacementGroups()
        free = self.unclaimed(groups)
        for slot in self.slots:
            if slot.is_idle:
                groups.release(slot.placement_group, free)
        return {
            node: {name: max(0.0, amount) for name, amount in resources.items()} for node, resources in free.items()
        }

    def _without_drained(self, nodes: NodeResources) -> NodeResources:
        return {node: resources for node, resources in nodes.items() if node not in self.draining}
