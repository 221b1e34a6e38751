"""Whether a worker group fits, and the sentence for the user when it does not."""

from typing import Any

import pytest

from service.domain.group_fit import fits
from service.domain.missing_resources import missing_resources
from trainer.resources import WorkerGroup
from trainer.wire import Node, Room, Scaling, Trainer


def rooms(*nodes: dict[str, float]) -> list[Room]:
    return [Room(resources, {}) for resources in nodes]


def scaling(workers: Any, strategy: str = "PACK", **resources: float) -> WorkerGroup:
    return Scaling.model_validate(
        {"num_workers": workers, "resources_per_worker": resources, "placement_strategy": strategy}
    ).group


@pytest.mark.parametrize(
    ("group", "nodes", "fit"),
    [
        (scaling(2, CPU=1), [{"CPU": 2.0}], True),
        (scaling(2, CPU=1), [{"CPU": 1.0}, {"CPU": 1.0}], True),
        (scaling(2, CPU=2), [{"CPU": 3.0}, {"CPU": 1.0}], False),
        (scaling(10, CPU=0.1), [{"CPU": 1.0}], True),
        (scaling(2, CPU=1, GPU=1), [{"CPU": 8.0, "GPU": 1.0}], False),
        (scaling(2, "STRICT_PACK", CPU=1), [{"CPU": 1.0}, {"CPU": 1.0}], False),
        (scaling(2, "STRICT_SPREAD", CPU=1), [{"CPU": 4.0}], False),
        (scaling(2, "STRICT_SPREAD", CPU=1), [{"CPU": 4.0}, {"CPU": 1.0}], True),
        (scaling(1, CPU=1), [], False),
    ],
)
def test_a_worker_group_fits_as_a_whole_or_not_at_all(
    group: WorkerGroup, nodes: list[dict[str, float]], fit: bool
) -> None:
    assert fits(group, rooms(*nodes)) is fit


def test_an_elastic_group_fits_where_its_smallest_does() -> None:
    group = scaling({"min": 2, "max": 8})
    assert fits(group, rooms({"CPU": 2.0}))
    assert not fits(group, rooms({"CPU": 1.0}))
    assert missing_resources(group, {"a": [node(CPU=1)]}) == "2 to 8 workers x 1 CPU; the largest cluster has 1 CPU"


def test_workers_take_what_ray_train_would_give_them() -> None:
    assert Scaling().group.worker == {"CPU": 1}
    assert Scaling(use_gpu=True).group.worker == {"GPU": 1}
    assert Scaling(use_gpu=True, resources_per_worker={"CPU": 4}).group.worker == {"CPU": 4, "GPU": 1}
    assert Scaling(use_gpu=True, resources_per_worker={"GPU": 2, "CPU": 0}).group.worker == {"GPU": 2}


def node(**resources: float) -> Node:
    return Node(total=resources, free={})


def test_the_sentence_names_the_scarcest_resource() -> None:
    group = scaling(4, CPU=2, GPU=1)
    agents = {"a": [node(CPU=64, GPU=2)], "b": [node(CPU=4, GPU=1), node(CPU=4, GPU=1)]}
    assert missing_resources(group, agents) == "4 workers x 2 CPU + 1 GPU; the largest cluster has 2 GPU"
    roomy = {"CPU": 8.0, "GPU": 4.0}
    assert missing_resources(group, {"a": [Node(total=roomy, free=roomy)]}) is None
    assert missing_resources(group, {"a": [Node(total=roomy, free={"CPU": 8, "GPU": 1})]}) == (
        "4 workers x 2 CPU + 1 GPU; 1 GPU free now"
    )
    assert missing_resources(scaling(1, CPU=8), {"a": [node(CPU=4), node(CPU=4)]}) == (
        "1 worker x 8 CPU; the largest cluster has 8 CPU, but not in nodes that PACK can use"
    )


def test_the_sentence_counts_only_nodes_that_can_run_a_worker() -> None:
    with_gpus = {"CPU": 4.0, "GPU": 4.0}
    nodes = [
        Node(total=with_gpus, free={"CPU": 3, "GPU": 4}),
        Node(total={"CPU": 4.0}, free={"CPU": 2}),
        Node(total=with_gpus, free={"GPU": 1}),
    ]
    assert missing_resources(scaling(4, CPU=1, GPU=1), {"a": nodes}) == (
        "4 workers x 1 CPU + 1 GPU; 3 CPU free now on nodes that can run such a worker"
    )


def test_the_sentence_gives_the_reason_only_of_a_withheld_node_that_can_run_a_worker() -> None:
    gpus = Node(total={"CPU": 4, "GPU": 1}, free={"CPU": 4})
    cpus = Node(total={"CPU": 4}, free={}, withheld="node b: no room")
    group = scaling(1, CPU=1, GPU=1)
    assert missing_resources(group, {"a": [gpus, cpus]}) == "1 worker x 1 CPU + 1 GPU; 0 GPU free now"
    withheld = gpus.model_copy(update={"free": {}, "withheld": "node a: no room"})
    assert str(missing_resources(group, {"a": [cpus, withheld]})).endswith("for some minutes: node a: no room")


def test_the_sentence_says_that_there_is_no_node_yet() -> None:
    sentence = missing_resources(scaling(2, CPU=1), {"local": [], "other": []})
    assert sentence == "2 workers x 1 CPU; no agent's cluster has a node yet"


def test_the_smallest_share_and_the_largest_node_still_make_a_count() -> None:
    assert fits(scaling(100_000, CPU=1e-4), rooms({"CPU": 1e18}))
    assert not fits(scaling(2, CPU=1e18), rooms({"CPU": 1e18}))


def test_workers_without_resources_wait_for_nodes() -> None:
    assert missing_resources(scaling(2, "STRICT_SPREAD", CPU=0), {"a": [node(CPU=4)]}) == (
        "2 workers x nothing; the largest cluster has nodes: 1"
    )


def labelled(selector: Any, workers: Any = 2, strategy: str = "PACK") -> WorkerGroup:
    scaling = {"num_workers": workers, "label_selector": selector, "placement_strategy": strategy}
    return Scaling.model_validate(scaling).group


ZONES = [Room({"CPU": 2.0}, {"zone": "a"}), Room({"CPU": 1.0}, {"zone": "b"}), Room({"CPU": 1.0}, {})]


@pytest.mark.parametrize(
    ("group", "fit"),
    [
        (labelled({"zone": "a"}), True),
        (labelled({"zone": "a"}, 3), False),
        (labelled({"zone": "!a"}), True),
        (labelled({"zone": "!in(a, b)"}), False),
        (labelled({"zone": "in(a, b)"}, 3), True),
        (labelled({"zone": "in(a, b)"}, strategy="STRICT_PACK"), True),
        (labelled({"zone": "b"}, strategy="STRICT_PACK"), False),
        (labelled([{"zone": "a"}, {"zone": "b"}], strategy="STRICT_PACK"), False),
        (labelled([{"zone": "a"}, {"zone": "a"}], strategy="STRICT_PACK"), True),
        (labelled([{"zone": "a"}, {"zone": "a"}], strategy="STRICT_SPREAD"), False),
        # The first ones must not take what only the last one can use.
        (labelled([{}, {"zone": "!a"}, {"zone": "in(a, b)"}, {"zone": "b"}], 4), True),
        (labelled([{"zone": "!a"}, {"zone": "!a"}, {"zone": "b"}], 3), False),
        (labelled([{"zone": "a"}, {"zone": "b"}, {"zone": "c"}], [2, 3]), True),
        (labelled([{"zone": "a"}, {"zone": "c"}, {"zone": "b"}], [2, 3]), False),
    ],
)
def test_a_group_fits_on_nodes_with_its_labels_only(group: WorkerGroup, fit: bool) -> None:
    assert fits(group, ZONES) is fit


def test_the_sentence_names_the_missing_label() -> None:
    agents = {"here": [Node(total=one.resources, free={}, labels=one.labels) for one in ZONES]}
    need = "2 workers x 1 CPU on nodes with "
    assert missing_resources(labelled({"zone": "c"}), agents) == f"{need}zone=c; no node has zone=c"
    both = "zone=a and disk=ssd"
    assert missing_resources(labelled({"zone": "a", "disk": "ssd"}), agents) == f"{need}{both}; no node has disk=ssd"
    apart = labelled({"zone": "a", "disk": "ssd"})
    ssd = {"there": [Node(total={"CPU": 9}, free={}, labels={"disk": "ssd"})]}
    assert missing_resources(apart, agents | ssd) == f"{need}{both}; no node has {both}"
    assert missing_resources(labelled({"zone": "b"}), agents) == f"{need}zone=b; the largest cluster has 1 CPU there"
    assert missing_resources(labelled({"zone": "a"}), agents) == f"{need}zone=a; 0 CPU there free now"
    each = labelled([{"zone": "b"}, {}])
    assert missing_resources(each, {}) == (
        "an agent: none is connected (needs 2 workers x 1 CPU, of these 1 on nodes with zone=b, 1 on any node)"
    )


def validated(workers: Any = 1, strategy: str = "PACK", **reserved: Any) -> WorkerGroup:
    """Workers of 1 CPU, beside a validation."""
    scaling = {"num_workers": workers, "placement_strategy": strategy}
    validation = {"entrypoint": "train:validate", "ray_remote_kwargs": reserved}
    return Trainer.model_validate({"scaling": scaling, "validation": validation}).group


@pytest.mark.parametrize(
    ("group", "nodes", "fit"),
    [
        (validated(), [{"CPU": 1.0}], True),
        (validated(num_cpus=1), [{"CPU": 1.0}], False),
        (validated(num_cpus=1), [{"CPU": 2.0}], True),
        (validated(2, num_cpus=2), [{"CPU": 2.0}, {"CPU": 2.0}], True),
        (validated(2, num_cpus=2), [{"CPU": 3.0}, {"CPU": 1.0}], True),
        (validated(2, num_cpus=2), [{"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0}], False),
        (validated(2, "STRICT_SPREAD", num_cpus=1), [{"CPU": 3.0}, {"CPU": 1.0}], True),
        (validated(2, "STRICT_SPREAD", num_cpus=1), [{"CPU": 2.0}], False),
        (validated(num_gpus=1), [{"CPU": 8.0}, {"GPU": 1.0}], True),
        (validated(memory=8.0), [{"CPU": 8.0, "memory": 4.0}], False),
        (validated(resources={"disk": 1}), [{"CPU": 8.0, "disk": 1.0}], True),
        (validated(label_selector={"zone": "a"}), [{"CPU": 8.0}], False),
    ],
)
def test_a_group_fits_only_beside_a_validation(group: WorkerGroup, nodes: list[dict[str, float]], fit: bool) -> None:
    assert fits(group, rooms(*nodes)) is fit


def test_an_elastic_group_leaves_room_for_a_validation() -> None:
    assert validated({"min": 1, "max": 8}, num_cpus=2).size_on(rooms({"CPU": 6.0})) == 4
    assert validated({"min": 1, "max": 8}, num_cpus=2).size_on(rooms({"CPU": 3.0}, {"CPU": 2.0})) == 3


def test_the_sentence_says_that_the_validation_has_no_room() -> None:
    group = validated(2, num_gpus=1)
    need = "2 workers x 1 CPU, and beside them 1 GPU for trainer.validation"
    assert missing_resources(group, {}) == f"an agent: none is connected (needs {need})"
    here = {"CPU": 2.0}
    assert missing_resources(group, {"a": [Node(total=here, free=here)]}) == (
        f"{need}; there is room for the workers, but not for the validation"
    )
    there = {"CPU": 2.0, "GPU": 1.0}
    assert missing_resources(group, {"a": [Node(total=there, free=here)]}) == (
        f"{need}; there is room for the workers now, but not for the validation"
    )
    assert missing_resources(group, {"a": [Node(total=there, free={"GPU": 1.0})]}) == f"{need}; 0 CPU free now"
    assert missing_resources(group, {"a": [Node(total=there, free=there)]}) is None
    labelled = validated(num_cpus=1, label_selector={"zone": "c"})
    assert missing_resources(labelled, {"a": [Node(total=here, free=here)]}) == (
        "1 worker x 1 CPU, and beside them 1 CPU on a node with zone=c for trainer.validation; no node has zone=c"
    )
