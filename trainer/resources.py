"""Resources of a cluster's nodes: what is free, and whether a gang fits. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Amounts = dict[str, float]
Nodes = dict[str, Amounts]

# Ray's own bookkeeping among a node's resources: placement groups, node names, the object store.
INTERNAL = ("bundle_group_", "node:", "object_store_memory", "accelerator_type:")
TOLERANCE = 1e-6


def named(amounts: Amounts) -> Amounts:
    """Without what only Ray uses."""
    return {name: amount for name, amount in amounts.items() if not name.startswith(INTERNAL) and "_group_" not in name}


def gang(scaling: dict[str, Any]) -> list[Amounts]:
    """What each worker of a group takes, by Ray Train's rules: 1 CPU, or with `use_gpu` 1 GPU, if nothing is said."""
    worker = dict(scaling.get("resources_per_worker") or {})
    if scaling.get("use_gpu"):
        worker.setdefault("GPU", 1.0)
    elif not worker:
        worker = {"CPU": 1.0}
    return [{name: amount for name, amount in worker.items() if amount}] * int(scaling["num_workers"])


@dataclass(frozen=True)
class Placement:
    """A node for each bundle, and what is free then."""

    nodes: list[str]
    left: Nodes


def place(bundles: Iterable[Amounts], free: Nodes) -> Placement | None:
    """Each bundle where most is free; None if they don't fit. Ray may choose otherwise."""
    left = {node: dict(amounts) for node, amounts in free.items()}
    nodes = []
    for bundle in bundles:
        fitting = [node for node, amounts in left.items() if _covers(amounts, bundle)]
        if not fitting:
            return None
        best = max(fitting, key=lambda node: min(left[node].get(name, 0) - amount for name, amount in bundle.items()))
        left[best] = {name: amount - bundle.get(name, 0) for name, amount in left[best].items()}
        nodes.append(best)
    return Placement(nodes, left)


def add(free: Nodes, node: str, amounts: Amounts) -> None:
    """Count `amounts` on `node` as free, too. A node that is gone stays gone."""
    if node in free:
        for name, amount in amounts.items():
            free[node][name] = free[node].get(name, 0) + amount


def _covers(amounts: Amounts, bundle: Amounts) -> bool:
    return all(amounts.get(name, 0) + TOLERANCE >= amount for name, amount in bundle.items())
