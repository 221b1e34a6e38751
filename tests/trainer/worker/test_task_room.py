"""Why no node of a cluster has room for a task of Ray Data."""

from dataclasses import dataclass, field

import pytest

from trainer.resources import Bundle, NodeLabels, NodeResources
from trainer.worker.datasets.task_room import Nodes, why_no_room


@dataclass
class Case:
    """The nodes `gpu` and `cpu`, which have 4 CPUs each."""

    task: Bundle
    free: NodeResources = field(default_factory=lambda: {"gpu": {"CPU": 4.0}, "cpu": {"CPU": 4.0}})
    total: NodeResources = field(default_factory=lambda: {"gpu": {"CPU": 4.0}, "cpu": {"CPU": 4.0}})
    labels: NodeLabels = field(default_factory=lambda: {"gpu": {"tier": "gpu"}, "cpu": {"tier": "cpu"}})

    def why(self) -> str | None:
        return why_no_room(self.task, Nodes(self.free, self.total, self.labels))


def test_a_node_with_the_labels_and_the_resources_has_room() -> None:
    assert Case(Bundle({"CPU": 1}, {"tier": "cpu"})).why() is None
    assert Case(Bundle({}, {})).why() is None


def test_room_on_a_node_without_the_labels_does_not_count() -> None:
    why = Case(Bundle({"CPU": 1}, {"tier": "cpu"}), free={"gpu": {"CPU": 4.0}, "cpu": {"CPU": 0.0}}).why()
    assert why is not None
    assert why.startswith(
        "no node has room for a task of the datasets, which reserves 1 CPU on a node with tier=cpu by "
        "trainer.data.preprocess_on: the workers of trials hold the rest"
    )


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (Bundle({}, {"tier": "tpu"}), "no living node has such labels: start one with `ray start --labels tier=tpu`"),
        (Bundle({}, {"tier": "in(a, b)"}), "no living node has such labels: start one with such labels"),
        (
            Bundle({"preprocess": 1}, {}),
            "no node of the cluster has the resource 'preprocess': start one with `ray start --resources '{",
        ),
        (Bundle({"CPU": 8}, {}), "no node of the cluster has so much in all: reserve less"),
        (Bundle({"GPU": 1}, {}), "no node of the cluster has so much in all: reserve less"),
    ],
)
def test_what_no_node_can_ever_have_is_not_blamed_on_the_workers(task: Bundle, reason: str) -> None:
    why = Case(task).why()
    assert why is not None
    assert reason in why
    assert "workers" not in why
