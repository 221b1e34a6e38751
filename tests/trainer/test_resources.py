"""What a worker group reserves, and whether it fits. The rules for one worker are Ray Train's."""

from typing import Any

import pytest

from service.domain.placement import waiting_for
from trainer.resources import bundles_of, describe_workers, find_placement, resources_of_worker
from trainer.wire import Scaling


def test_a_worker_group_fits_only_if_every_worker_does() -> None:
    two_gpus = bundles_of({"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1}})
    assert two_gpus == [{"CPU": 1, "GPU": 1}] * 2
    nodes = {"a": {"CPU": 1.0, "GPU": 4.0}, "b": {"CPU": 8.0, "GPU": 1.0}}
    placed = find_placement(two_gpus, nodes)
    assert placed is not None
    assert sorted(placed.nodes) == ["a", "b"]
    assert placed.free == {"a": {"CPU": 0.0, "GPU": 3.0}, "b": {"CPU": 7.0, "GPU": 0.0}}
    assert find_placement(two_gpus, {"a": {"CPU": 1.0, "GPU": 4.0}}) is None


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
    assert wire.worker == expected
    assert bundles_of(wire.model_dump()) == [expected] * 2
    amounts = ", ".join(f"{amount:g} {name}" for name, amount in expected.items())
    assert describe_workers(wire.model_dump()) == f"2 workers x {amounts}"
    assert f"2 workers x {amounts.replace(', ', ' + ')}" in (waiting_for(wire, {}) or "")


@pytest.mark.ray
@pytest.mark.slow  # importing Ray Train takes seconds
@pytest.mark.parametrize(("scaling", "expected"), DEFAULTS)
def test_the_defaults_of_a_worker_are_those_of_ray_train(scaling: dict[str, Any], expected: dict[str, float]) -> None:
    from ray.train import ScalingConfig  # noqa: PLC0415 - heavy

    assert ScalingConfig(**scaling)._resources_per_worker_not_none == expected
    use_gpu, accelerator_type = scaling.get("use_gpu", False), scaling.get("accelerator_type")
    ours = resources_of_worker(scaling.get("resources_per_worker"), use_gpu=use_gpu, accelerator_type=accelerator_type)
    assert ours == expected
