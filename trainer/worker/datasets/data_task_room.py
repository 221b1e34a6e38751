"""Whether a node has room for the tasks of Ray Data, which Ray itself would let wait without end or message.

It travels to the dataset server by value.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from trainer.node_labels import is_label_value, selector_text, selects
from trainer.ray_train.cluster_state import autoscales, node_labels, total_resources_per_node, unreserved_resources
from trainer.resources import Bundle, NodeLabels, NodeResources, Resources, covers
from trainer.worker.failures import CANNOT_START, DatasetNotMade, Failure

ROOM_SECONDS = 60.0
"""How long the tasks of a dataset may wait for what the workers of trials hold."""

NODE_SECONDS = 300.0
"""How long they may wait for a node that could have them: one may be about to start again."""

CHECK_SECONDS = 1.0

PREDEFINED = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that `ray start --resources` refuses."""


@dataclass(frozen=True)
class Nodes:
    """What the living nodes have beside placement groups, what they have in all, and their labels, by node id."""

    free: NodeResources
    total: NodeResources
    labels: NodeLabels


def await_room(task: Bundle) -> None:
    """Raise DatasetNotMade unless a node has so much beside what placement groups hold, or soon will.

    A node that is missing is not awaited where the cluster autoscales: a node is added only for tasks that are there.
    """
    started = node_seen_missing = time.monotonic()
    while (task.resources or task.selector) and (reason := why_no_room(task, nodes := _living_nodes())) is not None:
        is_node_missing = not has_node_for(task, nodes)
        if is_node_missing and autoscales():
            return
        now = time.monotonic()
        node_seen_missing = now if is_node_missing else node_seen_missing
        if now > (started + NODE_SECONDS if is_node_missing else node_seen_missing + ROOM_SECONDS):
            raise DatasetNotMade(Failure(CANNOT_START, reason))
        time.sleep(CHECK_SECONDS)


def has_node_for(task: Bundle, nodes: Nodes) -> bool:
    """Whether a living node could have the task if it were empty."""
    return any(task.fits(total, nodes.labels.get(node, {})) for node, total in nodes.total.items())


def why_no_room(task: Bundle, nodes: Nodes) -> str | None:
    """Why no node can have the task; None if one can."""
    if any(task.fits(free, nodes.labels.get(node, {})) for node, free in nodes.free.items()):
        return None
    amounts = ", ".join(f"{amount:g} {name}" for name, amount in task.resources.items())
    place = f" on a node with {selector_text(task.selector)}" if task.selector else ""
    return (
        f"no node has room for a task of the datasets, which {f'reserves {amounts}' if amounts else 'runs'}{place} by "
        f"trainer.data.preprocess_on: {_cause(task, nodes)}"
    )


def _cause(task: Bundle, nodes: Nodes) -> str:
    chosen = [total for node, total in nodes.total.items() if selects(task.selector, nodes.labels.get(node, {}))]
    if not chosen:
        labels = ",".join(f"{key}={value}" for key, value in task.selector.items())
        start = f"`ray start --labels {labels}`" if all(map(is_label_value, task.selector.values())) else "such labels"
        return f"no living node has such labels: start one with {start}, or change preprocess_on.label_selector"
    which = "such node" if task.selector else "node of the cluster"
    if unknown := dict(_unknown(task.resources, chosen)):
        names = " and ".join(f"the resource {name!r}" for name in unknown)
        start = ", ".join(f'"{name}": {amount:g}' for name, amount in unknown.items())
        return f"no {which} has {names}: start one with `ray start --resources '{{{start}}}'`"
    if not any(covers(total, task.resources) for total in chosen):
        return f"no {which} has so much in all: reserve less"
    return (
        "the workers of trials hold the rest. Leave preprocess_on.resources out, so that these tasks reserve nothing, "
        "or use fewer or smaller workers"
    )


def _unknown(resources: Resources, nodes: list[Resources]) -> Iterator[tuple[str, float]]:
    """The custom resources that none of the nodes has."""
    for name, amount in resources.items():
        if name not in PREDEFINED and not any(node.get(name) for node in nodes):
            yield name, amount


def _living_nodes() -> Nodes:
    return Nodes(unreserved_resources(), total_resources_per_node(), node_labels())
