"""The state of the Ray cluster that Ray's public API leaves out, asked of Ray's core: it needs no dashboard."""

from typing import Any

import ray
from ray._private import state as ray_state  # the modules: their objects cannot travel to a slot by value
from ray.core.generated import common_pb2, gcs_pb2
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from trainer.resources import WorkerGroup


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What is unreserved on each node, by node id and resource name."""
    found: dict[str, dict[str, float]] = ray_state.available_resources_per_node()
    return found


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """All that each living node has, by node id and resource name."""
    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


def is_node_alive(node: str) -> bool:
    """Ray's verdict. By default it takes a good minute to find out that a node has vanished without a word."""
    return any(one["Alive"] for one in ray.nodes() if one["NodeID"] == node)


def node_labels() -> dict[str, dict[str, str]]:
    """The labels of each living node, by node id."""
    return {node["NodeID"]: dict(node["Labels"]) for node in ray.nodes() if node["Alive"]}


def autoscales() -> bool:
    """Whether an autoscaler adds nodes for tasks that wait: it then tells Ray its largest cluster."""
    return ray_state.state.get_max_resources_from_cluster_config() is not None


def unreserved_resources() -> dict[str, dict[str, float]]:
    """What each living node has beside the placement groups on it, by node id, in use or not."""
    free = total_resources_per_node()
    for group in placement_group_table().values():
        if group["state"] == "CREATED":
            for index, bundle in group["bundles"].items():
                resources = free.get(group["bundles_to_node_id"][index], {})
                resources |= {name: resources.get(name, 0.0) - amount for name, amount in bundle.items()}
    return free


def reserved_by(group: Any | None) -> list[tuple[str, dict[str, float]]]:
    """The node and the resources of each bundle of a placement group; nothing for None."""
    entry = placement_group_table(group) if group is not None else {}
    nodes = entry.get("bundles_to_node_id", {})
    return [(nodes[index], resources) for index, resources in entry.get("bundles", {}).items()]


def drain_deadlines() -> dict[str, int]:
    """The ids of the nodes that Ray drains, with the deadline in milliseconds since the epoch; 0 for none."""
    found: dict[str, int] = ray_state.state.get_draining_nodes()
    return found


def orphaned_placement_groups() -> list[str]:
    """The ids, in hexadecimal, of this namespace's placement groups whose creator, an actor, is dead.

    Ray removes the placement groups of a detached actor with the actor, but those of any other actor only with the
    whole job. The controller of a plain `fit()` is such an actor, and dies with its slot.
    """
    namespace = ray.get_runtime_context().namespace
    return [
        group.placement_group_id.hex()
        for group in _placement_groups()
        if group.ray_namespace == namespace
        and group.creator_actor_dead
        and not ray.ActorID(group.creator_actor_id).is_nil()
    ]


def pending_groups(own: Any | None) -> list[WorkerGroup]:
    """The worker groups of this namespace that wait for resources, but not that of the placement group `own`.

    The bundles of each are alike, except for their labels.
    """
    namespace = ray.get_runtime_context().namespace
    found = (group for group in _placement_groups() if group.state == group.PENDING and group.bundles)
    others = (group for group in found if own is None or group.placement_group_id != own.id.binary())
    return [_worker_group(group) for group in others if group.ray_namespace == namespace]


def _worker_group(group: Any) -> WorkerGroup:
    count = len(group.bundles)
    return WorkerGroup(
        min_workers=count,
        max_workers=count,
        is_elastic=False,
        worker=dict(group.bundles[0].unit_resources),
        strategy=common_pb2.PlacementStrategy.Name(group.strategy),
        selectors=[dict(bundle.label_selector) for bundle in group.bundles],
    )


def remove_group(group: str) -> None:
    """Free what a placement group reserves, by its id in hexadecimal. It need not be of this process."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))


def remove_groups_of(actor: Any) -> None:
    """Free what the placement groups that this actor has created reserve."""
    creator = actor._actor_id.binary()  # noqa: SLF001
    for group in _placement_groups():
        if group.creator_actor_id == creator:
            remove_group(group.placement_group_id.hex())


def _placement_groups() -> list[Any]:
    """The placement groups that are not removed."""
    accessor = ray_state.state._connect_and_get_accessor()  # noqa: SLF001 - the public table leaves out the creator
    data = gcs_pb2.PlacementGroupTableData
    groups = (data.FromString(group) for group in accessor.get_placement_group_table())
    return [group for group in groups if group.state != data.REMOVED]
