"""Whether a whole worker group fits an agent's nodes; of an elastic one, the smallest that may start."""

from collections.abc import Mapping, Sequence

from trainer.wire import Node, Scaling

Resources = Mapping[str, float]

_ROUNDING = 1e-6


def fits(scaling: Scaling, nodes: Sequence[Resources]) -> bool:
    """`nodes` are their free resources, or their total ones for whether the group could ever fit."""
    per_node = [_workers_on(scaling, node) for node in nodes]
    if scaling.placement_strategy == "STRICT_PACK":
        return max(per_node, default=0) >= scaling.num_workers
    if scaling.placement_strategy == "STRICT_SPREAD":
        return sum(count > 0 for count in per_node) >= scaling.num_workers
    return sum(per_node) >= scaling.num_workers


def waiting_for(scaling: Scaling, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """A sentence for the user that names the missing resources; None when an agent has room now."""
    least, most = scaling.num_workers, scaling.most_workers
    count = f"{least} to {most}" if most > least else f"{least}"
    need = f"{count} worker{'s' * (most > 1)} x {_amounts(scaling.worker)}"
    if not agents:
        return f"an agent: none is connected (needs {need})"
    total = [[node.total for node in nodes] for nodes in agents.values()]
    free = [[node.free for node in nodes] for nodes in agents.values()]
    if any(fits(scaling, nodes) for nodes in free):
        return None
    if any(fits(scaling, nodes) for nodes in total):
        return f"{need}; {_most(scaling, free, 'free now')}"
    return f"{need}; the largest agent has {_most(scaling, total)}"


def _most(scaling: Scaling, agents: Sequence[Sequence[Resources]], when: str = "") -> str:
    """How much of the scarcest resource the largest agent has."""
    if not scaling.worker:
        return f"nodes: {max(map(len, agents))}"
    scarce = _scarce(scaling, agents)
    most = max(sum(node.get(scarce, 0) for node in nodes) for nodes in agents)
    enough = most >= scaling.worker[scarce] * scaling.num_workers
    shape = f", but not in nodes that {scaling.placement_strategy} can use" if enough else ""
    return f"{_number(most)} {scarce}{' ' * bool(when)}{when}{shape}"


def _workers_on(scaling: Scaling, node: Resources) -> int:
    per_resource = [node.get(name, 0) / amount + _ROUNDING for name, amount in scaling.worker.items()]
    return int(min([scaling.num_workers, *per_resource]))


def _scarce(scaling: Scaling, agents: Sequence[Sequence[Resources]]) -> str:
    """The resource of which the largest agent has the smallest share of the needed amount."""

    def share(name: str) -> float:
        needed = scaling.worker[name] * scaling.num_workers
        return max(sum(node.get(name, 0) for node in nodes) for nodes in agents) / needed

    return min(scaling.worker, key=share)


def _amounts(resources: Resources) -> str:
    return " + ".join(f"{_number(amount)} {name}" for name, amount in sorted(resources.items())) or "nothing"


def _number(amount: float) -> str:
    return f"{amount:g}"
