"""Which resources of an agent's nodes are reserved for a worker group, so that they accumulate until it fits. Pure.

What keeps this free of starvation: the group's workers are planned where the least is missing, first on what is free.
Nothing that another group may take makes more missing there, and what ends there makes less missing. So the planned
nodes change only for ones that are nearer to the goal, and once all that runs on them has ended, the group fits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from service.domain.group_fit import could_fit
from trainer.wire import Bundle, Node, Room, WorkerGroup, selects

Resources = Mapping[str, float]

NOTHING: Resources = {}


@dataclass(frozen=True)
class Reservation:
    """`reserved` has a part of each node, in their order; `missing` is what still has to be freed there.

    `missing` counts workers: half of what a worker needs is 0.5.
    """

    reserved: Sequence[Resources]
    missing: float


def reserve(group: WorkerGroup, nodes: Sequence[Node]) -> Reservation | None:
    """Plan the smallest group that may start; None if it would not fit even on empty nodes.

    Ray places the workers later, so this is an estimate. If selectors make it hard to find a plan although there is
    one, everything is reserved.
    """
    if not could_fit(group, nodes):
        return None
    plans = (plan for eligible in _eligible(group, nodes) if (plan := _plan(group, nodes, eligible)) is not None)
    everything = Reservation([node.total for node in nodes], float(group.min_workers))
    return min(plans, key=lambda plan: plan.missing, default=everything)


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


def _eligible(group: WorkerGroup, nodes: Sequence[Node]) -> Iterator[Sequence[int]]:
    """The nodes that the workers may use together: each alone if all must be on one."""
    if group.strategy == "STRICT_PACK":
        yield from ([index] for index in range(len(nodes)))
    else:
        yield range(len(nodes))


def _plan(group: WorkerGroup, nodes: Sequence[Node], eligible: Sequence[int]) -> Reservation | None:
    """Place the workers, and the validation on any node; those with the fewest possible nodes first."""
    wanted = [(bundle, eligible) for bundle in group.bundles(group.min_workers)]
    if group.validation is not None:
        wanted.append((group.validation, range(len(nodes))))
    choices = [
        (bundle, [index for index in among if bundle.fits(nodes[index].total, nodes[index].labels)])
        for bundle, among in wanted
    ]
    plan, missing, used = _Plan(nodes), 0.0, set[int]()
    for bundle, indexes in sorted(choices, key=lambda choice: len(choice[1])):
        is_worker = bundle is not group.validation
        open_to = [
            index for index in indexes if not (is_worker and group.strategy == "STRICT_SPREAD" and index in used)
        ]
        chosen = plan.place(bundle, open_to)
        if chosen is None:
            return None
        index, lacks = chosen
        missing += lacks
        if is_worker:
            used.add(index)
    return Reservation(plan.reserved, missing)


class _Plan:
    """What is planned on each node, and what is left of it: of its total, and of what is free now."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.reserved: list[dict[str, float]] = [{} for _ in nodes]
        self._total = [dict(node.total) for node in nodes]
        self._free = [dict(node.free) for node in nodes]

    def place(self, bundle: Bundle, among: Iterable[int]) -> tuple[int, float] | None:
        """Place it where the least is missing, on the first of equal nodes. Returns the node and what is missing."""
        possible = [index for index in among if Bundle(bundle.resources, {}).fits(self._total[index], {})]
        if not possible:
            return None
        best = min(possible, key=lambda index: (self._missing(bundle, index), index))
        missing = self._missing(bundle, best)
        for name, amount in bundle.resources.items():
            self._total[best][name] = self._total[best].get(name, 0.0) - amount
            self._free[best][name] = self._free[best].get(name, 0.0) - amount
            self.reserved[best][name] = self.reserved[best].get(name, 0.0) + amount
        return best, missing

    def _missing(self, bundle: Bundle, index: int) -> float:
        """The share that is missing of the resource of which the largest share is."""
        free = self._free[index]
        shares = (1 - max(0.0, free.get(name, 0.0)) / amount for name, amount in bundle.resources.items())
        return max(0.0, *shares, 0.0)


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
