"""Resource arithmetic: what a worker group needs, what the nodes of a cluster have free, and whether the group fits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Resources = dict[str, float]
"""Amounts by the resource's name, such as `{"CPU": 1.0, "GPU": 0.5}`."""

NodeResources = dict[str, Resources]
"""Resources by node id."""

INTERNAL_PREFIXES = ("bundle_group_", "node:", "object_store_memory")
"""Ray's own bookkeeping among a node's resources: placement groups, node names, the object store."""

ROUNDING_TOLERANCE = 1e-6

ACCELERATOR_SHARE = 0.001
"""What each worker reserves of a node's resource `accelerator_type:…`, of which Ray gives each node one."""


def resources_of_worker(
    resources_per_worker: Mapping[str, float] | None, *, use_gpu: bool, accelerator_type: str | None = None
) -> Resources:
    """What one worker reserves, by the rules of Ray Train's `ScalingConfig`.

    With `use_gpu` and no amount of "GPU", a worker gets one GPU. A worker for which nothing is requested gets one CPU.
    Resources with the amount 0 are left out.
    """
    resources = dict(resources_per_worker or {})
    if use_gpu:
        resources.setdefault("GPU", 1.0)
    elif not resources:
        resources = {"CPU": 1.0}
    if accelerator_type:
        resources.setdefault(f"accelerator_type:{accelerator_type}", ACCELERATOR_SHARE)
    return {name: amount for name, amount in resources.items() if amount}


@dataclass(frozen=True)
class WorkerGroup:
    """What `trainer.wire.Scaling` says about a worker group: its smallest and largest size, and each worker's share."""

    min_workers: int
    max_workers: int
    is_elastic: bool
    worker: Resources
    strategy: str

    @classmethod
    def of(cls, scaling: Mapping[str, Any]) -> "WorkerGroup":
        """`scaling` is `trainer.wire.Scaling` as JSON."""
        least, most = int(scaling["num_workers"]), scaling.get("max_workers")
        worker = resources_of_worker(
            scaling.get("resources_per_worker"),
            use_gpu=bool(scaling.get("use_gpu")),
            accelerator_type=scaling.get("accelerator_type"),
        )
        return cls(
            min_workers=least,
            max_workers=least if most is None else int(most),
            is_elastic=most is not None,
            worker=worker,
            strategy=scaling.get("placement_strategy") or "PACK",
        )

    def size_on(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """How many of its workers fit; `nodes` are their free resources. At most its largest size."""
        counts = [self._count_on(node) for node in nodes]
        if self.strategy == "STRICT_PACK":
            return max(counts, default=0)
        if self.strategy == "STRICT_SPREAD":
            counts = [min(1, count) for count in counts]
        return min(self.max_workers, sum(counts))

    def _count_on(self, node: Mapping[str, float]) -> int:
        shares = [node.get(name, 0) / amount + ROUNDING_TOLERANCE for name, amount in self.worker.items()]
        return max(0, int(min([self.max_workers, *shares])))


def bundles_of(scaling: Mapping[str, Any]) -> list[Resources]:
    """The placement group's bundles, one for each worker; of an elastic group, those of the smallest that may start.

    `scaling` is `trainer.wire.Scaling` as JSON.
    """
    group = WorkerGroup.of(scaling)
    return [group.worker] * group.min_workers


def describe_workers(scaling: Mapping[str, Any]) -> str:
    """The worker group for an error message, such as "2 workers x 1 CPU, 1 GPU", or "1 to 4 workers x 1 CPU"."""
    group = WorkerGroup.of(scaling)
    least, most = group.min_workers, group.max_workers
    amounts = ", ".join(f"{amount:g} {name}" for name, amount in group.worker.items()) or "no resources"
    count = f"{least} to {most}" if most > least else f"{least}"
    return f"{count} worker{'s' * (most > 1)} x {amounts}"


def without_internal(resources: Resources) -> Resources:
    """The resources that a user can request."""
    return {
        name: amount
        for name, amount in resources.items()
        if not name.startswith(INTERNAL_PREFIXES) and "_group_" not in name
    }


@dataclass(frozen=True)
class Placement:
    """A node id for each bundle, and what is free after these bundles are placed."""

    nodes: list[str]
    free: NodeResources


def find_placement(bundles: Iterable[Resources], free: NodeResources) -> Placement | None:
    """Place each bundle on the node with the most free resources. None if they don't all fit.

    This is an estimate: Ray's scheduler may choose other nodes.
    """
    remaining = {node: dict(resources) for node, resources in free.items()}
    nodes = []
    for bundle in bundles:
        candidates = [node for node, resources in remaining.items() if covers(resources, bundle)]
        if not candidates:
            return None
        best = max(candidates, key=lambda node: _scarcest(remaining[node], bundle))
        remaining[best] = {name: amount - bundle.get(name, 0) for name, amount in remaining[best].items()}
        nodes.append(best)
    return Placement(nodes, remaining)


def find_largest_placement(scaling: Mapping[str, Any], free: NodeResources) -> Placement | None:
    """Place as many workers as fit. None if that is fewer than may start."""
    group = WorkerGroup.of(scaling)
    size = max(group.min_workers, group.size_on(free.values()))
    return find_placement([group.worker] * size, free)


def release(free: NodeResources, node: str, resources: Resources) -> None:
    """Count these resources of the node as free. A node that is not in `free` has gone and is not added."""
    if node in free:
        for name, amount in resources.items():
            free[node][name] = free[node].get(name, 0) + amount


def covers(resources: Mapping[str, float], bundle: Mapping[str, float]) -> bool:
    """Whether there is enough of everything."""
    return all(resources.get(name, 0) + ROUNDING_TOLERANCE >= amount for name, amount in bundle.items())


def _scarcest(resources: Resources, bundle: Resources) -> float:
    """How much stays free of the bundle's scarcest resource; without resources any node is as good."""
    return min((resources.get(name, 0) - amount for name, amount in bundle.items()), default=0.0)
