"""How many workers an elastic group has: by what is free now, and never less than what it has. Needs no cluster."""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.conftest import set_constant
from trainer.resources import NODE_ID_LABEL, Resources, WorkerGroup, scaling_without
from trainer.wire.specification.validation import Validation, ValidationTask

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


class Cluster:
    """What Ray says: free resources by node, what the group's placement group holds, which nodes are drained.

    `waiting`: the groups of other trials that wait for their resources, of which the nodes have `total`.
    """

    def __init__(self, free: dict[str, Resources], held: list[tuple[str, Resources]] | None = None) -> None:
        self.free, self.held, self.drained = free, held or [], dict[str, int]()
        self.total, self.waiting = free, list[WorkerGroup]()
        self.withheld: list[str] = []
        self.promised: dict[str, Resources] = {"all": {"CPU": 100.0}}
        self.offers: list[int] = []

    def policy(
        self, monkeypatch: pytest.MonkeyPatch, *lost: str, cancelled: bool = False, start_seconds: float = 60
    ) -> Any:
        from ray.train.v2.api.config import ScalingConfig

        from trainer.ray_train import elastic_policy

        size = elastic_policy.Elasticity.size
        set_constant(monkeypatch, size, "available_resources_per_node", lambda: self.free)
        set_constant(monkeypatch, size, "node_labels", lambda: {node: {NODE_ID_LABEL: node} for node in self.free})
        set_constant(monkeypatch, size, "drain_deadlines", lambda: self.drained)
        set_constant(monkeypatch, size, "reserved_by", lambda _group: self.held)
        set_constant(monkeypatch, size, "pending_groups", lambda _own: self.waiting)
        set_constant(monkeypatch, size, "total_resources_per_node", lambda: self.total)
        config = ScalingConfig(num_workers=(2, 4), elastic_resize_monitor_interval_s=1)
        workers = self._workers()
        elasticity = elastic_policy.Elasticity(workers, frozenset(lost), self.offers.append, self._workers)
        policy = elastic_policy.RoomPolicy(config, elasticity, object, lambda: cancelled, start_seconds)
        monkeypatch.setattr(policy, "_maybe_send_resource_request", lambda: None)
        monkeypatch.setattr(policy, "_get_reserved_resources", lambda: self.promised)
        return policy

    def _workers(self) -> WorkerGroup:
        return WorkerGroup.of(scaling_without(self.withheld, {"num_workers": 2, "max_workers": 4}))


def started(policy: Any) -> int | None:
    """The number of workers it starts with; None if it waits."""
    found: int | None = getattr(policy.make_decision_for_non_running_worker_group(), "num_workers", None)
    return found


def offered(cluster: Cluster, policy: Any, workers: int) -> list[int]:
    """What it offers to a running group of so many workers, for whom it decides nothing."""
    state = SimpleNamespace(start_time=time.monotonic() - 3600, num_workers=workers)
    assert not hasattr(policy.make_decision_for_running_worker_group(state, None), "num_workers")
    return cluster.offers


def test_it_starts_with_what_is_free_up_to_its_maximum_and_waits_below_its_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert started(Cluster({"a": {"CPU": 2.0}, "b": {"CPU": 1.0}}).policy(monkeypatch)) == 3
    assert started(Cluster({"a": {"CPU": 20.0}}).policy(monkeypatch)) == 4
    assert started(Cluster({"a": {"CPU": 1.0}}).policy(monkeypatch)) is None


def test_what_its_placement_group_holds_is_free_for_it_but_not_on_nodes_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({"a": {"CPU": 0.0}, "b": {"CPU": 1.0}}, held=[("a", {"CPU": 2.0}), ("dead", {"CPU": 1.0})])
    assert started(cluster.policy(monkeypatch)) == 3
    assert started(cluster.policy(monkeypatch, "b")) == 2, "b no longer answers"
    cluster.drained = {"a": 0}
    assert started(cluster.policy(monkeypatch)) is None


def test_it_takes_nothing_of_what_another_trial_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"a": {"CPU": 4.0}, "b": {"CPU": 1.0}})
    cluster.total = {"a": {"CPU": 8.0}, "b": {"CPU": 4.0}}
    cluster.waiting = [WorkerGroup.of({"num_workers": 6, "placement_strategy": "STRICT_PACK"})]
    assert started(cluster.policy(monkeypatch)) is None
    cluster.waiting = [WorkerGroup.of({"num_workers": 9, "placement_strategy": "STRICT_PACK"})]
    assert started(cluster.policy(monkeypatch)) == 4, "the other one fits on no node, whatever is freed"


def test_it_gives_up_when_it_is_cancelled_or_has_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.ray_train.elastic_policy import ResourcesTimeout

    for policy in (
        Cluster({}).policy(monkeypatch, cancelled=True),
        Cluster({}).policy(monkeypatch, start_seconds=-1),
    ):
        with pytest.raises(ResourcesTimeout):
            policy.make_decision_for_non_running_worker_group()


def test_a_running_group_is_offered_only_what_is_free_and_promised_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"a": {"CPU": 0.0}}, held=[("a", {"CPU": 2.0})])
    policy = cluster.policy(monkeypatch)
    assert started(policy) == 2
    assert offered(cluster, policy, 2) == [], "others hold the rest, whatever Ray's policy counts"

    cluster.free, cluster.promised = {"a": {"CPU": 0.0}, "b": {"CPU": 2.0}}, {"a": {"CPU": 3.0}}
    other = cluster.policy(monkeypatch)
    other._size = 2
    assert offered(cluster, other, 2) == [3], "another elastic group is promised the rest"


def test_a_running_group_does_not_shrink_while_its_workers_live(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"a": {"CPU": 3.0}})
    policy = cluster.policy(monkeypatch)
    assert started(policy) == 3
    cluster.promised = {"a": {"CPU": 2.0}}
    assert offered(cluster, policy, 3) == []


def test_a_running_group_is_offered_a_node_as_soon_as_that_is_no_longer_withheld(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({"a": {"CPU": 2.0}, "b": {"CPU": 1.0}})
    cluster.withheld = ["b"]
    policy = cluster.policy(monkeypatch)
    assert started(policy) == 2
    cluster.withheld = []
    assert offered(cluster, policy, 2) == [3]


def test_a_running_group_is_not_offered_a_node_that_is_withheld_since_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({"a": {"CPU": 2.0}})
    policy = cluster.policy(monkeypatch)
    assert started(policy) == 2
    cluster.free, cluster.withheld = {"a": {"CPU": 2.0}, "b": {"CPU": 1.0}}, ["b"]
    assert offered(cluster, policy, 2) == [], "it would start again with as many as before"


def test_it_leaves_room_for_what_a_validation_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.ray_train.runners import RunPlan

    validation = Validation(entrypoint="train:validate", ray_remote_kwargs=ValidationTask(num_cpus=1)).model_dump()
    scaling = {"num_workers": 2, "max_workers": 4}
    plan = RunPlan("torch", scaling, {}, "run", "/storage", lambda: False, lambda: None, validation=validation)
    assert plan.elasticity is not None
    assert Cluster({"a": {"CPU": 4.0}}).policy(monkeypatch)._elasticity.size(None) == 4
    assert plan.elasticity.size(None) == 3
