"""Whether a worker group fits an agent's nodes: all of its workers, or none."""

from collections.abc import Mapping, Sequence

from trainer.wire import Node, Scaling

Resources = Mapping[str, float]

_ROUNDING = 1e-6


def fits(scaling: Scaling, nodes: Sequence[Resources]) -> bool:
    per_node = [_workers_on(scaling, node) for node in nodes]
    if scaling.placement_strategy == "STRICT_PACK":
        return max(per_node, default=0) >= scaling.num_workers
    if scaling.placement_strategy == "STRICT_SPREAD":
        return sum(count > 0 for count in per_node) >= scaling.num_workers
    return sum(per_node) >= scaling.num_workers


def fits_now(scaling: Scaling, nodes: Sequence[Node]) -> bool:
    return fits(scaling, [node.free for node in nodes])


def fits_ever(scaling: Scaling, nodes: Sequence[Node]) -> bool:
    return fits(scaling, [node.total for node in nodes])


def waiting_for(scaling: Scaling, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """What an experiment waits for, as a sentence; None when some agent can run it, now or later."""
    need = f"{scaling.num_workers} workers x {_amounts(scaling.worker)}"
    if scaling.num_workers == 1:
        need = f"1 worker x {_amounts(scaling.worker)}"
    if not agents:
        return f"an agent: none is connected (needs {need})"
    if any(fits_ever(scaling, nodes) for nodes in agents.values()):
        return None
    if not scaling.worker:
        return f"{need}; the largest agent has nodes: {max(map(len, agents.values()))}"
    scarce = _scarce(scaling, list(agents.values()))
    totals = [sum(node.total.get(scarce, 0) for node in nodes) for nodes in agents.values()]
    return f"{need}; the largest agent has {_number(max(totals))} {scarce}" + _shape(scaling, max(totals), scarce)


def _workers_on(scaling: Scaling, node: Resources) -> int:
    per_resource = [node.get(name, 0) / amount + _ROUNDING for name, amount in scaling.worker.items()]
    return int(min([scaling.num_workers, *per_resource]))


def _scarce(scaling: Scaling, agents: list[Sequence[Node]]) -> str:
    """The resource of which the cluster nearest to it has the smallest share of what is needed."""

    def share(name: str) -> float:
        needed = scaling.worker[name] * scaling.num_workers
        return max(sum(node.total.get(name, 0) for node in nodes) for nodes in agents) / needed

    return min(scaling.worker, key=share)


def _shape(scaling: Scaling, total: float, name: str) -> str:
    enough = total >= scaling.worker[name] * scaling.num_workers
    return f", but not in nodes that {scaling.placement_strategy} can use" if enough else ""


def _amounts(resources: Resources) -> str:
    return " + ".join(f"{_number(amount)} {name}" for name, amount in sorted(resources.items())) or "nothing"


def _number(amount: float) -> str:
    return f"{amount:g}"
