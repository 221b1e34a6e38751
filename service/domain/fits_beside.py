"""What other groups may use of nodes on which resources are reserved for a worker group. Pure.

What keeps this free of starvation: nothing that another group may take makes more missing where the group's workers
are planned (`trainer/reservation.py`), and what ends there makes less missing. So the planned nodes change only for
ones that are nearer to the goal, and once all that runs on them has ended, the group fits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainer.wire import Node, Reservation, Room, WorkerGroup, selects

Resources = Mapping[str, float]

NOTHING: Resources = {}


def fits_beside(group: WorkerGroup, nodes: Sequence[Node], reservation: Reservation) -> bool:
    """Whether the group fits now and takes nothing of what is reserved, on whichever of the nodes Ray places it."""
    rooms = [_room_beside(group, node, reserved) for node, reserved in zip(nodes, reservation.reserved, strict=True)]
    if any(room is None for room in rooms):
        return False
    return group.size_on(room for room in rooms if room is not None) >= group.min_workers


def needs_of(group: WorkerGroup) -> dict[str, float]:
    """What the smallest group reserves in all, with its validation."""
    needs = {name: amount * group.min_workers for name, amount in group.worker.items()}
    beside = group.validation.resources if group.validation is not None else NOTHING
    return {name: needs.get(name, 0.0) + beside.get(name, 0.0) for name in needs.keys() | beside.keys()}


def needs_more(group: WorkerGroup, than: WorkerGroup) -> bool:
    """Whether what one group of the other kind frees may be too little for it."""
    freed = needs_of(than)
    return any(amount > freed.get(name, 0.0) for name, amount in needs_of(group).items())


def _room_beside(group: WorkerGroup, node: Node, reserved: Resources) -> Room | None:
    """What the group may use of the node; None if some of its workers may land on what is reserved.

    Ray chooses the node, so as many workers as find room there may come.
    """
    anywhere = replace(group, selectors=[{}], validation=None)
    can_land = any(selects(selector, node.labels) for selector in group.selectors)
    if not can_land or not reserved.keys() & group.worker.keys():
        return Room(node.free, node.labels)
    rest = {name: max(0.0, amount - reserved.get(name, 0.0)) for name, amount in node.free.items()}
    is_safe = anywhere.size_on([Room(rest, {})]) == anywhere.size_on([Room(node.free, {})])
    return Room(rest, node.labels) if is_safe else None
