"""Resource arithmetic: what a worker group needs, what the nodes of a cluster have free, and whether the group fits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainer.node_labels import Labels, Selector, count_placed, selector_text, selects

Resources = dict[str, float]
"""Amounts by the resource's name, such as `{"CPU": 1.0, "GPU": 0.5}`."""

NodeResources = dict[str, Resources]
"""Resources by node id."""

NodeLabels = Mapping[str, Labels]
"""Labels by node id."""

INTERNAL_PREFIXES = ("bundle_group_", "node:", "object_store_memory")
"""Ray's own bookkeeping among a node's resources: placement groups, node names, the object store."""

ROUNDING_TOLERANCE = 1e-6

NODE_ID_LABEL = "ray.io/node-id"
"""Ray gives each node this label."""

DEFAULT_STRATEGY: Final = "PACK"
"""Ray Train's: as few nodes as possible."""

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
class Room:
    """What a node has to give, its free resources or all of them, and its labels."""

    resources: Mapping[str, float]
    labels: Labels


@dataclass(frozen=True)
class Bundle:
    """What one worker or validation reserves, and the labels of the nodes where it may run."""

    resources: Resources
    selector: Selector

    def fits(self, resources: Mapping[str, float], labels: Labels) -> bool:
        """Whether a node with these free resources and labels can have it."""
        return covers(resources, self.resources) and selects(self.selector, labels)


@dataclass(frozen=True)
class WorkerGroup:
    """What `trainer.wire.Scaling` says about a worker group: its smallest and largest size, and each worker's share.

    `selectors`: of the nodes' labels, one for all workers or one for each of the largest group's.
    `validation`: what a validation reserves, for which the group leaves room. One is enough, since each trial runs one
    at a time: those of several trials may take turns, but none may find that workers hold everything.
    """

    min_workers: int
    max_workers: int
    is_elastic: bool
    worker: Resources
    strategy: str
    selectors: Sequence[Selector]
    validation: Bundle | None = None

    @classmethod
    def of(cls, scaling: Mapping[str, Any], validation: Mapping[str, Any] | None = None) -> "WorkerGroup":
        """`scaling` is `trainer.wire.Scaling` as JSON, and `validation` is `trainer.wire.Validation`."""
        least, most = int(scaling["num_workers"]), scaling.get("max_workers")
        labels = scaling.get("label_selector") or {}
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
            strategy=scaling.get("placement_strategy") or DEFAULT_STRATEGY,
            selectors=labels if isinstance(labels, list) else [labels],
            validation=bundle_of_validation(validation) if validation else None,
        )

    def bundles(self, size: int) -> list[Bundle]:
        """One for each worker of a group of this size."""
        return [Bundle(self.worker, self._selector_of(index)) for index in range(size)]

    def smallest_selectors(self) -> Sequence[Selector]:
        """The selectors of the smallest group that may start."""
        return self.selectors[: self.min_workers]

    def in_words(self, amounts: str) -> str:
        """For a sentence, such as "2 to 4 workers x 1 CPU on nodes with zone=a"; `amounts` is what each worker has."""
        least, most = self.min_workers, self.max_workers
        count = f"{least} to {most}" if most > least else f"{least}"
        return f"{count} worker{'s' * (most > 1)} x {amounts}{self._labels_in_words()}"

    def _labels_in_words(self) -> str:
        """Which nodes the workers need, such as " on nodes with zone=a"; empty for any."""
        texts = Counter(map(selector_text, self.selectors))
        if len(texts) == 1:
            (text,) = texts
            return f" on nodes with {text}" if text else ""
        counts = [f"{count} on {f'nodes with {text}' if text else 'any node'}" for text, count in texts.items()]
        return f", of these {', '.join(counts)}"

    def size_on(self, nodes: Iterable[Room]) -> int:
        """How many of its workers fit beside a validation, at most its largest size."""
        if self.validation is None:
            return self._workers_on(nodes)
        return max(map(self._workers_on, _rest_after(self.validation, list(nodes))), default=0)

    def _workers_on(self, nodes: Iterable[Room]) -> int:
        counts = [(self._count_on(node.resources), node.labels) for node in nodes]
        if self.strategy == "STRICT_PACK":
            return max((self._placed([one]) for one in counts), default=0)
        if self.strategy == "STRICT_SPREAD":
            counts = [(min(1, count), labels) for count, labels in counts]
        return self._placed(counts)

    def _placed(self, nodes: Sequence[tuple[int, Labels]]) -> int:
        """How many workers are placed on nodes that each have room for so many."""
        if len(self.selectors) > 1:
            return count_placed(self.selectors, nodes)
        (selector,) = self.selectors
        return min(self.max_workers, sum(count for count, labels in nodes if selects(selector, labels)))

    def _selector_of(self, index: int) -> Selector:
        return self.selectors[min(index, len(self.selectors) - 1)]

    def _count_on(self, node: Mapping[str, float]) -> int:
        shares = [node.get(name, 0) / amount + ROUNDING_TOLERANCE for name, amount in self.worker.items()]
        return max(0, int(min([self.max_workers, *shares])))


def bundle_of_validation(validation: Mapping[str, Any]) -> Bundle | None:
    """None for one that reserves nothing and may run anywhere."""
    options = validation["ray_remote_kwargs"]
    amounts = {"CPU": options["num_cpus"], "GPU": options["num_gpus"], "memory": options["memory"]}
    reserved = {name: amount for name, amount in {**amounts, **options["resources"]}.items() if amount}
    selector = options["label_selector"]
    return Bundle(reserved, selector) if reserved or selector else None


def bundles_of(scaling: Mapping[str, Any]) -> list[Bundle]:
    """The placement group's bundles, one for each worker; of an elastic group, those of the smallest that may start.

    `scaling` is `trainer.wire.Scaling` as JSON.
    """
    group = WorkerGroup.of(scaling)
    return group.bundles(group.min_workers)


def scaling_without(nodes: Iterable[str], scaling: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling with selectors that leave out these nodes, by Ray's ids; those of the user for this label stay."""
    left_out = sorted(nodes)
    if not left_out:
        return dict(scaling)
    others = {NODE_ID_LABEL: f"!in({','.join(left_out)})"}
    own = scaling.get("label_selector") or {}
    selector = [{**others, **one} for one in own] if isinstance(own, list) else {**others, **own}
    return {**scaling, "label_selector": selector}


def describe_workers(scaling: Mapping[str, Any]) -> str:
    """The worker group for an error message, such as "2 workers x 1 CPU, 1 GPU on nodes with zone=a"."""
    group = WorkerGroup.of(scaling)
    return group.in_words(", ".join(f"{amount:g} {name}" for name, amount in group.worker.items()) or "no resources")


def _rest_after(bundle: Bundle, nodes: Sequence[Room]) -> Iterator[list[Room]]:
    """What the nodes still have, for each node that can have the bundle."""
    for index, node in enumerate(nodes):
        if bundle.fits(node.resources, node.labels):
            rest = {name: amount - bundle.resources.get(name, 0) for name, amount in node.resources.items()}
            yield [*nodes[:index], Room(rest, node.labels), *nodes[index + 1 :]]


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


def find_placement(bundles: Iterable[Bundle], free: NodeResources, labels: NodeLabels) -> Placement | None:
    """Place each bundle on the node with the most free resources. None if they don't all fit.

    This is an estimate: Ray's scheduler may choose other nodes.
    """
    remaining = {node: dict(resources) for node, resources in free.items()}
    nodes = []
    for bundle in bundles:
        wanted = bundle.resources
        candidates = [node for node, left in remaining.items() if bundle.fits(left, labels.get(node, {}))]
        if not candidates:
            return None
        best = max(candidates, key=lambda node: _scarcest(remaining[node], wanted))
        remaining[best] = {name: amount - wanted.get(name, 0) for name, amount in remaining[best].items()}
        nodes.append(best)
    return Placement(nodes, remaining)


def find_largest_placement(scaling: Mapping[str, Any], free: NodeResources, labels: NodeLabels) -> Placement | None:
    """Place as many workers as fit. None if that is fewer than may start."""
    group = WorkerGroup.of(scaling)
    rooms = [Room(resources, labels.get(node, {})) for node, resources in free.items()]
    size = max(group.min_workers, group.size_on(rooms))
    return find_placement(group.bundles(size), free, labels)


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
