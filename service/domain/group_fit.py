"""Whether a whole worker group fits an agent's nodes; of an elastic one, the smallest that may start.

With it has to fit what a validation of its checkpoints reserves.
"""

from collections.abc import Sequence

from trainer.wire import Node, Room, WorkerGroup


def fits_now(group: WorkerGroup, nodes: Sequence[Node]) -> bool:
    """Whether the group fits into what is free on an agent's nodes."""
    return fits(group, free_room(nodes))


def could_fit(group: WorkerGroup, nodes: Sequence[Node]) -> bool:
    """Whether it would fit if no trial used anything of the nodes."""
    return fits(group, total_room(nodes))


def fits(group: WorkerGroup, nodes: Sequence[Room]) -> bool:
    return group.size_on(nodes) >= group.min_workers


def free_room(nodes: Sequence[Node]) -> list[Room]:
    return [Room(node.free, node.labels) for node in nodes]


def total_room(nodes: Sequence[Node]) -> list[Room]:
    return [Room(node.total, node.labels) for node in nodes]
