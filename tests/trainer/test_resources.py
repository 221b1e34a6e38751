"""What a worker group reserves, and whether it fits. The rules for one worker are Ray Train's."""

from typing import Any

import pytest

from service.domain.missing_resources import missing_resources
from trainer.resources import (
    Bundle,
    Room,
    WorkerGroup,
    bundles_of,
    describe_workers,
    find_largest_placement,
    find_placement,
    resources_of_worker,
    scaling_without,
)
from trainer.wire import Scaling


def test_a_worker_group_fits_only_if_every_worker_does() -> None:
    two_gpus = bundles_of({"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1}})
    assert two_gpus == [Bundle({"CPU": 1, "GPU": 1}, {})] * 2
    nodes = {"a": {"CPU": 1.0, "GPU": 4.0}, "b": {"CPU": 8.0, "GPU": 1.0}}
    placed = find_placement(two_gpus, nodes, {})
    assert placed is not None
    assert sorted(placed.nodes) == ["a", "b"]
    assert placed.free == {"a": {"CPU": 0.0, "GPU": 3.0}, "b": {"CPU": 7.0, "GPU": 0.0}}
    assert find_placement(two_gpus, {"a": {"CPU": 1.0, "GPU": 4.0}}, {}) is None


DEFAULTS = [
    ({}, {"CPU": 1}),
    ({"use_gpu": True}, {"GPU": 1}),
    ({"resources_per_worker": {"CPU": 2}}, {"CPU": 2}),
    ({"resources_per_worker": {"CPU": 2}, "use_gpu": True}, {"CPU": 2, "GPU": 1}),
    ({"resources_per_worker": {"GPU": 0.5}, "use_gpu": True}, {"GPU": 0.5}),
    ({"resources_per_worker": {"CPU": 0, "custom": 4}}, {"custom": 4}),
    ({"use_gpu": True, "accelerator_type": "A100"}, {"GPU": 1, "accelerator_type:A100": 0.001}),
    ({"accelerator_type": "A100"}, {"CPU": 1, "accelerator_type:A100": 0.001}),
]


@pytest.mark.parametrize(("scaling", "expected"), DEFAULTS)
def test_the_defaults_of_a_worker_are_the_same_for_wire_agent_and_messages(
    scaling: dict[str, Any], expected: dict[str, float]
) -> None:
    wire = Scaling.model_validate({**scaling, "num_workers": 2})
    assert wire.group.worker == expected
    assert bundles_of(wire.model_dump()) == [Bundle(expected, {})] * 2
    amounts = ", ".join(f"{amount:g} {name}" for name, amount in expected.items())
    assert describe_workers(wire.model_dump()) == f"2 workers x {amounts}"
    assert f"2 workers x {amounts.replace(', ', ' + ')}" in (missing_resources(wire.group, {}) or "")


@pytest.mark.ray
@pytest.mark.slow  # importing Ray Train takes seconds
@pytest.mark.parametrize(("scaling", "expected"), DEFAULTS)
def test_the_defaults_of_a_worker_are_those_of_ray_train(scaling: dict[str, Any], expected: dict[str, float]) -> None:
    from ray.train import ScalingConfig  # noqa: PLC0415 - heavy

    assert ScalingConfig(**scaling)._resources_per_worker_not_none == expected
    use_gpu, accelerator_type = scaling.get("use_gpu", False), scaling.get("accelerator_type")
    ours = resources_of_worker(scaling.get("resources_per_worker"), use_gpu=use_gpu, accelerator_type=accelerator_type)
    assert ours == expected


NODES = [Room({"CPU": 3.0}, {}), Room({"CPU": 1.0}, {}), Room({"GPU": 1.0}, {})]


@pytest.mark.parametrize(
    ("strategy", "most", "size"), [("PACK", 9, 4), ("PACK", 2, 2), ("STRICT_PACK", 9, 3), ("STRICT_SPREAD", 9, 2)]
)
def test_an_elastic_group_has_as_many_workers_as_fit(strategy: str, most: int, size: int) -> None:
    scaling = Scaling.model_validate({"num_workers": {"min": 1, "max": most}, "placement_strategy": strategy})
    group = WorkerGroup.of(scaling.model_dump(mode="json"))
    assert group.size_on(NODES) == size
    assert group.size_on([]) == 0


def test_an_elastic_group_is_offered_room_for_its_minimum_and_takes_up_to_its_maximum() -> None:
    scaling = Scaling.model_validate({"num_workers": [2, 3]}).model_dump(mode="json")
    assert bundles_of(scaling) == [Bundle({"CPU": 1.0}, {})] * 2
    assert describe_workers(scaling) == "2 to 3 workers x 1 CPU"
    placement = find_largest_placement(scaling, {"a": {"CPU": 2.0}, "b": {"CPU": 3.0}}, {})
    assert placement is not None
    assert sum(node["CPU"] for node in placement.free.values()) == 2
    assert find_largest_placement(scaling, {"a": {"CPU": 1.0}}, {}) is None


@pytest.mark.parametrize(
    ("own", "selector"),
    [
        (None, {"ray.io/node-id": "!in(a,b)"}),
        ({"zone": "x"}, {"ray.io/node-id": "!in(a,b)", "zone": "x"}),
        ([{}, {"ray.io/node-id": "c"}], [{"ray.io/node-id": "!in(a,b)"}, {"ray.io/node-id": "c"}]),
    ],
)
def test_workers_are_kept_from_nodes_by_a_selector(own: Any, selector: Any) -> None:
    scaling = {"num_workers": 2, "label_selector": own}
    left = scaling_without({"b", "a"}, scaling)
    assert left == {"num_workers": 2, "label_selector": selector}
    assert scaling_without([], scaling) == scaling
    free = {node: {"CPU": 8.0} for node in "abc"}
    placement = find_placement(bundles_of(left), free, {node: {"ray.io/node-id": node, "zone": "x"} for node in free})
    assert placement is not None
    assert placement.nodes == ["c", "c"]


def test_the_agent_places_workers_on_nodes_with_their_labels() -> None:
    scaling = Scaling.model_validate({"num_workers": 2, "label_selector": [{"zone": "b"}, {"zone": "!b"}]})
    free = {"a": {"CPU": 8.0}, "b": {"CPU": 1.0}}
    placement = find_placement(bundles_of(scaling.model_dump()), free, {"a": {"zone": "a"}, "b": {"zone": "b"}})
    assert placement is not None
    assert placement.nodes == ["b", "a"]
    assert find_placement(bundles_of(scaling.model_dump()), free, {}) is None
    assert describe_workers(scaling.model_dump()) == (
        "2 workers x 1 CPU, of these 1 on nodes with zone=b, 1 on nodes with zone=!b"
    )
