"""Which resources of a cluster's nodes are reserved for a worker group, so that they accumulate until it fits. Pure.

The group's workers are planned where the least is missing, first on what is free already.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.node_labels import Labels
from trainer.resources import Bundle, NodeLabels, NodeResources, Room, WorkerGroup, covers


class NodeRoom(Protocol):
    """What a node has in all, what of it is free, and its labels."""

    @property
    def total(self) -> Mapping[str, float]: ...

    @property
    def free(self) -> Mapping[str, float]: ...

    @property
    def labels(self) -> Labels: ...


@dataclass(frozen=True)
class KnownNode:
    """A `NodeRoom` as Ray shows it."""

    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Labels


@dataclass(frozen=True)
class Reservation:
    """`reserved` has a part of each node, in their order; `missing` is what still has to be freed there.

    `missing` counts workers: half of what a worker needs is 0.5.
    """

    reserved: Sequence[Mapping[str, float]]
    missing: float


def reserve(group: WorkerGroup, nodes: Sequence[NodeRoom]) -> Reservation | None:
    """Plan the smallest group that may start; None if it would not fit even on empty nodes.

    Ray places the workers later, so this is an estimate. If selectors make it hard to find a plan although there is
    one, everything is reserved.
    """
    if group.size_on(Room(node.total, node.labels) for node in nodes) < group.min_workers:
        return None
    plans = (plan for eligible in _eligible(group, nodes) if (plan := _plan(group, nodes, eligible)) is not None)
    everything = Reservation([node.total for node in nodes], float(group.min_workers))
    return min(plans, key=lambda plan: plan.missing, default=everything)


def rest_beside(group: WorkerGroup, free: NodeResources, total: NodeResources, labels: NodeLabels) -> NodeResources:
    """What others may use while a group that does not fit yet waits for what is missing, on the nodes in `free`."""
    nodes = [KnownNode(total.get(node, {}), has, labels.get(node, {})) for node, has in free.items()]
    reservation = reserve(group, nodes)
    if reservation is None:
        return free
    return {
        node: {name: max(0.0, amount - reserved.get(name, 0.0)) for name, amount in has.items()}
        for (node, has), reserved in zip(free.items(), reservation.reserved, strict=True)
    }


def _eligible(group: WorkerGroup, nodes: Sequence[NodeRoom]) -> Iterator[Sequence[int]]:
    """The nodes that the workers may use together: each alone if all must be on one."""
    if group.strategy == "STRICT_PACK":
        yield from ([index] for index in range(len(nodes)))
    else:
        yield range(len(nodes))


def _plan(group: WorkerGroup, nodes: Sequence[NodeRoom], eligible: Sequence[int]) -> Reservation | None:
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

    def __init__(self, nodes: Sequence[NodeRoom]) -> None:
        self.reserved: list[dict[str, float]] = [{} for _ in nodes]
        self._total = [dict(node.total) for node in nodes]
        self._free = [dict(node.free) for node in nodes]

    def place(self, bundle: Bundle, among: Iterable[int]) -> tuple[int, float] | None:
        """Place it where the least is missing, on the first of equal nodes. Returns the node and what is missing."""
        possible = [index for index in among if covers(self._total[index], bundle.resources)]
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
