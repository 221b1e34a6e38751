"""Why no node of a cluster has room for a task of Ray Data, and how long a dataset waits for one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from trainer.resources import Bundle, NodeLabels, NodeResources
from trainer.worker.datasets import data_task_room
from trainer.worker.datasets.data_task_room import Nodes, await_room, why_no_room
from trainer.worker.failures import CANNOT_START, DatasetNotMade


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


SELECTED = Bundle({}, {"tier": "cpu"})
ALONE = Nodes(free={"gpu": {}}, total={"gpu": {}}, labels={"gpu": {"tier": "gpu"}})
JOINED = Nodes(free={"cpu": {}}, total={"cpu": {}}, labels={"cpu": {"tier": "cpu"}})


class Clock:
    """Looks at the nodes, one after the other; each look is followed by a second."""

    def __init__(self, patch: pytest.MonkeyPatch, looks: Iterator[Nodes], *, autoscales: bool = False) -> None:
        self.now = 0.0
        patch.setattr(data_task_room, "_living_nodes", lambda: next(looks))
        patch.setattr(data_task_room, "autoscales", lambda: autoscales, raising=False)
        patch.setattr(data_task_room, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_node_that_starts_again_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, (ALONE if look < 120 else JOINED for look in count()))
    await_room(SELECTED)
    assert clock.now == 120


def test_a_node_that_does_not_come_fails_the_dataset_later_than_one_that_workers_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, (ALONE for _ in count()))
    with pytest.raises(DatasetNotMade) as raised:
        await_room(SELECTED)
    assert (raised.value.failure.kind, clock.now) == (CANNOT_START, 301)
    held = Nodes(free={"cpu": {"CPU": 0}}, total={"cpu": {"CPU": 4}}, labels={"cpu": {}})
    clock = Clock(monkeypatch, (held for _ in count()))
    with pytest.raises(DatasetNotMade, match="the workers of trials hold the rest"):
        await_room(Bundle({"CPU": 1}, {}))
    assert clock.now == 61


def test_the_tasks_are_the_demand_for_a_node_that_an_autoscaler_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, (ALONE for _ in count()), autoscales=True)
    await_room(SELECTED)
    assert clock.now == 0
