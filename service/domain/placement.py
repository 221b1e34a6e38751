"""Whether a whole worker group fits an agent's nodes; of an elastic one, the smallest that may start."""

from collections.abc import Mapping, Sequence

from trainer.wire import Node, Room, Scaling, describe_labels, selector_text, selects

Resources = Mapping[str, float]


def fits_now(scaling: Scaling, nodes: Sequence[Node]) -> bool:
    """Whether the group fits into what is free on an agent's nodes."""
    return fits(scaling, _free(nodes))


def could_fit(scaling: Scaling, nodes: Sequence[Node]) -> bool:
    """Whether it would fit if no trial used anything of the nodes."""
    return fits(scaling, _total(nodes))


def fits(scaling: Scaling, nodes: Sequence[Room]) -> bool:
    return scaling.group.size_on(nodes) >= scaling.num_workers


def waiting_for(scaling: Scaling, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """A sentence for the user that names what is missing; None when an agent has room now."""
    least, most = scaling.num_workers, scaling.most_workers
    count = f"{least} to {most}" if most > least else f"{least}"
    need = f"{count} worker{'s' * (most > 1)} x {_amounts(scaling.worker)}{describe_labels(scaling.group)}"
    if not agents:
        return f"an agent: none is connected (needs {need})"
    if any(fits_now(scaling, nodes) for nodes in agents.values()):
        return None
    if any(could_fit(scaling, nodes) for nodes in agents.values()):
        return f"{need}; {_most(scaling, [_free(nodes) for nodes in agents.values()], 'free now')}"
    if (label := _missing_label(scaling, agents)) is not None:
        return f"{need}; no node has {label}"
    return f"{need}; the largest agent has {_most(scaling, [_total(nodes) for nodes in agents.values()])}"


def _free(nodes: Sequence[Node]) -> list[Room]:
    return [Room(node.free, node.labels) for node in nodes]


def _total(nodes: Sequence[Node]) -> list[Room]:
    return [Room(node.total, node.labels) for node in nodes]


def _missing_label(scaling: Scaling, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """What no node of any agent has: a single label if there is one, else all labels of a worker together."""
    labels = [node.labels for nodes in agents.values() for node in nodes]
    for selector in scaling.group.smallest_selectors():
        for part in ({key: condition} for key, condition in selector.items()):
            if not any(selects(part, one) for one in labels):
                return selector_text(part)
        if not any(selects(selector, one) for one in labels):
            return selector_text(selector)
    return None


def _most(scaling: Scaling, agents: Sequence[Sequence[Room]], when: str = "") -> str:
    """How much of the scarcest resource the largest agent has on nodes with the labels."""
    selectors = scaling.group.smallest_selectors()
    usable = [[one.resources for one in nodes if any(selects(s, one.labels) for s in selectors)] for nodes in agents]
    if not scaling.worker:
        return f"nodes: {max(map(len, usable))}"
    scarce = _scarce(scaling, usable)
    most = max(sum(node.get(scarce, 0) for node in nodes) for nodes in usable)
    enough = most >= scaling.worker[scarce] * scaling.num_workers
    shape = f", but not in nodes that {scaling.placement_strategy} can use" if enough else ""
    there = " there" if any(selectors) else ""
    return f"{_number(most)} {scarce}{there}{' ' * bool(when)}{when}{shape}"


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
