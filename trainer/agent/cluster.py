"""A Ray cluster as the agent sees it. It asks only Ray's core, because a cluster may run without its dashboard."""

import logging
import math
import os
import sys
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.util import list_named_actors
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.client.addresses import ServiceAddresses
from trainer.process_log.context import log_context
from trainer.process_log.setup import LogSettings
from trainer.ray_train import cluster_state
from trainer.resources import NodeResources, Resources, release, without_internal
from trainer.slot.slot import Slot
from trainer.traces import exporter_settings

logger = logging.getLogger(__name__)

SLOT_CONCURRENCY = 10_000
"""How many calls a slot answers at the same time: each report of each rank waits in one."""


CONNECT_SECONDS = 30.0
"""How long the Ray cluster may take to answer when one joins it."""


class ClusterUnreachable(RuntimeError):
    """There is no Ray cluster to work with at that address."""


def connect(address: str, namespace: str, seconds: float | None = None) -> None:
    """Join the cluster. Raises ClusterUnreachable after a timeout; Ray itself would try without end.

    None: the timeout is `CONNECT_SECONDS`.
    """
    timeout = CONNECT_SECONDS if seconds is None else seconds
    failure: list[BaseException] = []

    def join() -> None:
        try:
            ray.init(address=address, namespace=namespace, log_to_driver=False, configure_logging=False)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=join, name="ray-init", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise ClusterUnreachable(f"no Ray cluster at {address} answered within {timeout:g} seconds; is its head up?")
    if failure:
        raise ClusterUnreachable(_why_unreachable(address, failure[0])) from failure[0]
    # This package cannot be imported on the cluster: its code is pickled whole.
    cloudpickle.register_pickle_by_value(sys.modules["trainer"])


def _why_unreachable(address: str, error: BaseException) -> str:
    if "auth" in f"{type(error).__name__} {error}".lower():
        mode = os.environ.get("RAY_AUTH_MODE", "not set")
        return (
            f"the Ray cluster at {address} requires its token: start the agent with RAY_AUTH_MODE=token (it is {mode}) "
            "and RAY_AUTH_TOKEN_PATH, the file that the cluster was started with"
        )
    return f"no Ray cluster to join at {address}: {type(error).__name__}: {error}"


def start_slot(
    prefix: str, node: str | None, addresses: ServiceAddresses, runtime_env: dict[str, Any], *, spare: bool = False
) -> tuple[str, Any]:
    """The name and the handle of a new slot, without waiting for its start.

    The slot starts on `node`, and never starts if that node is gone; None: on any node. Its workers inherit
    `runtime_env`. It logs as this process does, and exports spans to the same place.
    """
    name = f"{prefix}{uuid.uuid4().hex[:8]}"
    # `soft=True` has no effect on an actor that needs no resources.
    strategy = NodeAffinitySchedulingStrategy(node, soft=False) if node else "DEFAULT"
    actor_class = ray.remote(Slot).options(
        name=name,
        lifetime="detached",
        num_cpus=0,
        max_concurrency=SLOT_CONCURRENCY,
        scheduling_strategy=strategy,
        runtime_env=runtime_env,
    )
    own = {
        "log": asdict(LogSettings.from_env()),
        "agent": log_context.process.get("agent"),
        "traces": exporter_settings(),
        "certificates": addresses.certificates,
    }
    return name, actor_class.remote(str(addresses), name, spare=spare, **own)


def find_slots(prefix: str) -> dict[str, Any]:
    """The handles of this namespace's living slots by name."""
    names = [str(name) for name in list_named_actors() if str(name).startswith(prefix)]
    found = {}
    for name in names:
        try:
            found[name] = ray.get_actor(name)
        except ValueError:
            logger.info("slot %s died before it was found", name)
    return found


def total_resources() -> NodeResources:
    """Raises ClusterUnreachable if this process's own node is gone: nothing can be started through it any more."""
    nodes = {node: without_internal(has) for node, has in cluster_state.total_resources_per_node().items()}
    own = ray.get_runtime_context().get_node_id()
    if own not in nodes:
        raise ClusterUnreachable(f"the Ray node {own}, through which this agent uses the cluster, is gone")
    return nodes


@dataclass(frozen=True)
class Raylet:
    """Where a node's raylet listens, and the bytes of memory that Ray counts on the node."""

    address: str
    memory: float


def raylets() -> dict[str, Raylet]:
    """The raylets of the living nodes, by node id."""
    return {
        node["NodeID"]: Raylet(
            f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", node["Resources"].get("memory", 0.0)
        )
        for node in ray.nodes()
        if node["Alive"]
    }


def node_address(node: str) -> str:
    """For people: the address of a node, or its id if Ray does not list it."""
    addresses = (str(one["NodeManagerAddress"]) for one in ray.nodes() if one["NodeID"] == node)
    return next(addresses, node)


def free_resources() -> NodeResources:
    available = cluster_state.available_resources_per_node()
    return {node: without_internal(resources) for node, resources in available.items()}


def draining_nodes() -> dict[str, float]:
    """The nodes that go away (a spot reclaim, a scale-down, SIGTERM to a node), and in how many seconds.

    Infinite if there is no deadline, or it has passed by this node's clock: another node has set it, by a clock that
    is behind.
    """
    now = time.time()
    left = {node: deadline_ms / 1000 - now for node, deadline_ms in cluster_state.drain_deadlines().items()}
    return {node: seconds if seconds > 0 else math.inf for node, seconds in left.items()}


class PlacementGroups:
    """What placement groups reserve on which node, at the time of construction."""

    def __init__(self) -> None:
        self._table: dict[str, Any] = placement_group_table()

    def of(self, group: str | None) -> list[tuple[str, Resources]] | None:
        """Node and resources of each bundle; None for a group that reserves nothing, yet or any more."""
        entry = self._table.get(group) if group else None
        if entry is None or entry["state"] != "CREATED":
            return None
        return [(entry["bundles_to_node_id"][index], resources) for index, resources in entry["bundles"].items()]

    def release(self, group: str | None, free: NodeResources) -> None:
        """Count what the group reserves as free."""
        for node, resources in self.of(group) or []:
            release(free, node, resources)
