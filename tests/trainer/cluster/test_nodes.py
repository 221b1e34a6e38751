"""Nodes of a Ray cluster that die or are drained: a second, real node beside the session's head."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.cluster.second_node import SecondNode, second_node
from tests.trainer.conftest import Add, free_the_cluster, until
from tests.trainer.fake_service import FakeService
from trainer.wire import FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def held_on(node: str) -> list[str]:
    """The placement groups with a part on that node."""
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    entries = placement_group_table().values()
    return [
        e["placement_group_id"] for e in entries if e["state"] != "REMOVED" and node in e["bundles_to_node_id"].values()
    ]


def drain(address: str, node: str, seconds: float) -> None:
    """Drain the node, as the autoscaler does for a reclaimed spot node."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415 - heavy
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason  # noqa: PLC0415 - heavy

    deadline = int((time.time() + seconds) * 1000)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=address).drain_node(node, reason, "spot reclaim", deadline)
    assert accepted, why


@pytest.fixture(scope="module")
def beta(shared: FakeService, ray_address: str) -> Iterator[SecondNode]:
    """A node for the first tests, the last of which drains it."""
    with second_node(shared, ray_address, "beta") as node:
        yield node


def test_a_node_without_gpus_preprocesses_for_the_workers_on_another(
    service: FakeService, add: Add, beta: SecondNode, record: Path
) -> None:
    """Each row says where it was made."""
    trial = add(
        "read_where",
        trainer={
            "entrypoint": "train:train_fn",
            "datasets": {"entrypoint": "train:where"},
            "data": {"preprocess_on": {"resources": {"CPU": 1, "beta": 1}}},
            "scaling": {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 4, "GPU": 1}},
        },
        experiment="x-where",
    )
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    lines = [line.split() for line in record.read_text().splitlines()]
    assert {made_on for _, _, _, made_on in lines} == {beta.id}
    assert beta.id not in {read_on for _, read_on, _, _ in lines}


@pytest.mark.parametrize("reuse_workers", [True, False])
@pytest.mark.parametrize(
    ("label_selector", "workers", "are_on_beta"),
    [({"named": "beta"}, 2, [True, True]), ([{"named": "!beta"}, {"named": "in(alpha, beta)"}], 2, [False, True])],
)
def test_workers_run_on_nodes_with_their_labels(
    service: FakeService,
    add: Add,
    beta: SecondNode,
    record: Path,
    label_selector: Any,
    workers: int,
    are_on_beta: list[bool],
    reuse_workers: bool,
) -> None:
    scaling = {"num_workers": workers, "label_selector": label_selector}
    trainer = {"scaling": scaling, "reuse_workers": reuse_workers}
    trial = add("say_where", trainer=trainer, experiment=f"x-labels-{len(label_selector)}-{reuse_workers}")
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    nodes = [line.split()[2] for line in record.read_text().splitlines()]
    assert sorted(node == beta.id for node in nodes) == sorted(are_on_beta)


def test_an_elastic_group_counts_only_nodes_with_its_labels(
    service: FakeService, add: Add, beta: SecondNode, record: Path
) -> None:
    free_the_cluster()
    scaling = {"num_workers": [1, 8], "label_selector": {"named": "beta"}}
    trial = add("say_where", trainer={"scaling": scaling}, experiment="x-elastic-labels")
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    assert [line.split()[2] for line in record.read_text().splitlines()] == [beta.id] * 4


def test_attempts_leave_a_drained_node_in_time_and_continue_elsewhere(
    service: FakeService, add: Add, ray_address: str, beta: SecondNode
) -> None:
    trial = add(config={"steps": 10_000, "pause": 0.1}, trainer={"scaling": beta.only}, experiment="x-beta")
    service.wait_for(lambda: service.reports[trial])
    drain(ray_address, beta.id, 60)
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED
    again = add("say_who", experiment="x-beta")
    assert service.finished(again).outcome == Outcome.COMPLETED
    service.wait_for(
        lambda: not any("beta" in node.total for node in service.claims[-1].nodes), what="an offer without the node"
    )
    until(lambda: not held_on(beta.id), "nothing is held on the node")
    beta.kill()  # the next test counts nodes


def test_after_the_death_of_a_node_its_attempts_run_on_the_remaining_one(
    service: FakeService, add: Add, ray_address: str
) -> None:
    spread = {"scaling": {"num_workers": 2, "placement_strategy": "SPREAD"}}
    service.wait_for(lambda: service.claims)
    free_the_cluster()
    with second_node(service, ray_address, "alpha") as node:
        service.parallelism = 2
        half = add(config={"steps": 10_000, "pause": 0.1}, trainer=spread, experiment="x-spread")
        service.wait_for(lambda: service.reports[half])
        whole = add(config={"steps": 10_000, "pause": 0.1}, trainer={"scaling": node.only}, experiment="x-alpha")
        service.wait_for(lambda: service.reports[whole])
        assert len(held_on(node.id)) == 2
        node.kill()
        # The slot of one attempt lives and reports it; the slot of the other was on the node, so the agent reports it.
        error = service.finished(half).error
        service.wait_for(lambda: whole in service.lost)
    assert error is not None
    assert error.kind == FailureKind.LOST
    second = add("say_who", trainer=spread, experiment="x-spread")
    assert service.finished(second).outcome == Outcome.COMPLETED, service.finishes[second]
    until(lambda: not held_on(node.id), "nothing is held on the node")
