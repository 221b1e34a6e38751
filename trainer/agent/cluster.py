"""A Ray cluster as the agent sees it, asked of Ray's core alone: it may run without its dashboard."""

import logging
import math
import os
import sys
import threading
import time
import uuid
from typing import Any

import ray
from ray import cloudpickle
from ray._private import state as ray_state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util import list_named_actors
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.resources import Amounts, Nodes, add, named
from trainer.slot.slot import Slot

logger = logging.getLogger(__name__)


class ClusterUnreachable(RuntimeError):
    """There is no Ray cluster to work with at that address."""


def connect(address: str, namespace: str, seconds: float) -> None:
    """Join the cluster. Raises ClusterUnreachable, where Ray itself would try for ever."""
    failure: list[BaseException] = []

    def join() -> None:
        try:
            ray.init(address=address, namespace=namespace, log_to_driver=False, configure_logging=False)
        except BaseException as error:  # noqa: BLE001 - told to the caller, from whose thread this hides
            failure.append(error)

    thread = threading.Thread(target=join, name="ray-init", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ClusterUnreachable(f"no Ray cluster at {address} answered within {seconds:g} seconds; is its head up?")
    if failure:
        raise ClusterUnreachable(_why(address, failure[0])) from failure[0]
    # Nothing of ours can be imported on the cluster; what is sent there is sent whole.
    cloudpickle.register_pickle_by_value(sys.modules["trainer"])


def _why(address: str, error: BaseException) -> str:
    if "auth" in f"{type(error).__name__} {error}".lower():
        mode = os.environ.get("RAY_AUTH_MODE", "not set")
        return (
            f"the Ray cluster at {address} wants its token: start the agent with RAY_AUTH_MODE=token (it is {mode}) "
            "and RAY_AUTH_TOKEN_PATH, the file that the cluster was started with"
        )
    return f"no Ray cluster to join at {address}: {type(error).__name__}: {error}"


def start_slot(prefix: str, node: str | None, service_url: str, *, spare: bool = False) -> tuple[str, Any]:
    """A new slot's name and handle, at once; the actor starts meanwhile, on `node`, and never does if that is gone."""
    name = f"{prefix}{uuid.uuid4().hex[:8]}"
    # Not `soft`, to which an actor without resources pays no heed.
    where = NodeAffinitySchedulingStrategy(node, soft=False) if node else "DEFAULT"
    options = {"lifetime": "detached", "num_cpus": 0, "max_concurrency": 10_000, "scheduling_strategy": where}
    return name, ray.remote(Slot).options(name=name, **options).remote(service_url, name, spare=spare)


def find_slots(prefix: str) -> dict[str, Any]:
    """The living slots of this namespace by name."""
    names = [str(name) for name in list_named_actors() if str(name).startswith(prefix)]
    found = {}
    for name in names:
        try:
            found[name] = ray.get_actor(name)
        except ValueError:
            logger.info("slot %s died while it was looked for", name)
    return found


def total_resources() -> Nodes:
    """Raises ClusterUnreachable if this process's own node is gone: nothing can be started through it any more."""
    nodes = {node["NodeID"]: named(node["Resources"]) for node in ray.nodes() if node["Alive"]}
    own = ray.get_runtime_context().get_node_id()
    if own not in nodes:
        raise ClusterUnreachable(f"the Ray node {own} beside this agent, its door to the cluster, is gone")
    return nodes


def free_resources() -> Nodes:
    return {node: named(amounts) for node, amounts in ray_state.available_resources_per_node().items()}


def draining_nodes() -> dict[str, float]:
    """The nodes that will be taken away (a spot reclaim, a scale-down, SIGTERM to a node), and in how many seconds."""
    now = time.time()
    deadlines: dict[str, int] = ray_state.state.get_draining_nodes()
    return {node: ms / 1000 - now if ms else math.inf for node, ms in deadlines.items()}


class Holdings:
    """What placement groups hold on which node, at the time of asking."""

    def __init__(self) -> None:
        self._table: dict[str, Any] = placement_group_table()

    def of(self, group: str | None) -> list[tuple[str, Amounts]] | None:
        """Node and amounts of each bundle; None for a group that does not hold anything (any more)."""
        entry = self._table.get(group) if group else None
        if entry is None or entry["state"] != "CREATED":
            return None
        return [(entry["bundles_to_node_id"][index], amounts) for index, amounts in entry["bundles"].items()]

    def give_back(self, group: str | None, free: Nodes) -> None:
        for node, amounts in self.of(group) or []:
            add(free, node, amounts)


def orphaned_groups() -> list[str]:
    """Placement groups of this namespace that nobody will remove: the actor that made them is dead.

    Ray removes those of a detached actor with it, but those of any other actor only with its whole job. Ray Train's
    controller of a plain `fit()` is such an actor, and dies with its slot.
    """
    namespace = ray.get_runtime_context().namespace
    accessor = ray_state.state._connect_and_get_accessor()  # noqa: SLF001 - the public table leaves the creator out
    groups = [PlacementGroupTableData.FromString(group) for group in accessor.get_placement_group_table()]
    return [
        group.placement_group_id.hex()
        for group in groups
        if group.ray_namespace == namespace
        and group.state != PlacementGroupTableData.REMOVED
        and group.creator_actor_dead
        and not ray.ActorID(group.creator_actor_id).is_nil()
    ]


def remove_group(group: str) -> None:
    """Free what a placement group holds, whoever made it."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))
