"""What is missing for a worker group to start, in sentences for the user."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.domain.group_fit import could_fit, fits, fits_now, free_room, total_room
from trainer.wire import Bundle, Node, Room, WorkerGroup, selector_text, selects

Resources = Mapping[str, float]


def missing_resources(group: WorkerGroup, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """A sentence for the user that names what is missing; None when an agent has room now."""
    need = _need(group)
    if not agents:
        return f"an agent: none is connected (needs {need})"
    if not any(agents.values()):
        return f"{need}; no agent's cluster has a node yet"
    if any(fits_now(group, nodes) for nodes in agents.values()):
        return None
    if any(could_fit(group, nodes) for nodes in agents.values()):
        return f"{need}; {_not_free(group, agents)}{_withheld(group, agents)}"
    if (label := _missing_label(group, agents)) is not None:
        return f"{need}; no node has {label}"
    total = [total_room(nodes) for nodes in agents.values()]
    return f"{need}; {_lacks_only_validation(group, total) or f'the largest cluster has {_most(group, total)}'}"


def with_kept(missing: str, agent: str) -> str:
    """The sentence `missing`, for a group that gets what is freed."""
    return f"{missing}; what becomes free on agent {agent} is reserved for it"


def kept_for_another(group: WorkerGroup, experiment: str) -> str:
    """A sentence for the user, if an agent has room now that is kept for an experiment ahead in the line."""
    return f"{_need(group)}; what is free is reserved for experiment {experiment}, which is ahead in the line"


def _need(group: WorkerGroup) -> str:
    workers = group.in_words(_amounts(group.worker))
    if group.validation is None:
        return workers
    labels = selector_text(group.validation.selector)
    where = f" on a node with {labels}" if labels else ""
    return f"{workers}, and beside them {_amounts(group.validation.resources)}{where} for trainer.validation"


def _missing_label(group: WorkerGroup, agents: Mapping[str, Sequence[Node]]) -> str | None:
    """What no node of any agent has: a single label if there is one, else all labels of a worker together."""
    labels = [node.labels for nodes in agents.values() for node in nodes]
    of_validation = [group.validation.selector] if group.validation is not None else []
    for selector in [*group.smallest_selectors(), *of_validation]:
        for part in ({key: condition} for key, condition in selector.items()):
            if not any(selects(part, one) for one in labels):
                return selector_text(part)
        if selector and not any(selects(selector, one) for one in labels):
            return selector_text(selector)
    return None


def _not_free(group: WorkerGroup, agents: Mapping[str, Sequence[Node]]) -> str:
    """What is free on nodes that can run a worker at all: CPUs elsewhere are of no use if it needs a GPU, too."""
    worker = Bundle(group.worker, {})
    everywhere = [free_room(nodes) for nodes in agents.values()]
    usable = [free_room([node for node in nodes if worker.fits(node.total, {})]) for nodes in agents.values()]
    if validation := _lacks_only_validation(group, usable, " now"):
        return validation
    most = _most(group, usable, "free now")
    is_clear = most == _most(group, everywhere, "free now") or any(group.smallest_selectors())
    return most if is_clear else _most(group, usable, "free now on nodes that can run such a worker")


def _withheld(group: WorkerGroup, agents: Mapping[str, Sequence[Node]]) -> str:
    """Why a node that can run a worker has nothing free although no trial uses it; others may have the same reason."""
    workers = [Bundle(group.worker, selector) for selector in group.smallest_selectors()]
    nodes = [node for one in agents.values() for node in one if any(w.fits(node.total, node.labels) for w in workers)]
    reasons = (node.withheld for node in nodes if node.withheld is not None)
    return next((f"; a node gets no new trial for some minutes: {reason}" for reason in reasons), "")


def _lacks_only_validation(group: WorkerGroup, agents: Sequence[Sequence[Room]], when: str = "") -> str | None:
    if group.validation is not None and any(fits(replace(group, validation=None), nodes) for nodes in agents):
        return f"there is room for the workers{when}, but not for the validation"
    return None


def _most(group: WorkerGroup, agents: Sequence[Sequence[Room]], when: str = "") -> str:
    """How much of the scarcest resource the largest cluster has on nodes with the labels."""
    selectors = group.smallest_selectors()
    usable = [[one.resources for one in nodes if any(selects(s, one.labels) for s in selectors)] for nodes in agents]
    if not group.worker:
        return f"nodes: {max(map(len, usable))}"
    scarce = _scarce(group, usable)
    most = max(sum(node.get(scarce, 0) for node in nodes) for nodes in usable)
    enough = most >= group.worker[scarce] * group.min_workers
    shape = f", but not in nodes that {group.strategy} can use" if enough else ""
    there = " there" if any(selectors) else ""
    return f"{most:g} {scarce}{there}{' ' * bool(when)}{when}{shape}"


def _scarce(group: WorkerGroup, agents: Sequence[Sequence[Resources]]) -> str:
    """The resource of which the largest cluster has the smallest share of the needed amount."""

    def share(name: str) -> float:
        needed = group.worker[name] * group.min_workers
        return max(sum(node.get(name, 0) for node in nodes) for nodes in agents) / needed

    return min(group.worker, key=share)


def _amounts(resources: Resources) -> str:
    return " + ".join(f"{amount:g} {name}" for name, amount in sorted(resources.items())) or "nothing"
