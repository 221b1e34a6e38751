"""An assignment for a slot that takes long to start, or that is about to finish another attempt."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from tests.trainer.agent.played_slot import ASSIGNMENT, IDLE, NOTHING_YET, SINCE, STARTING, PlayedSlot, pooled
from trainer.agent import cluster
from trainer.agent.slot_pool import node_offer, slot_pool
from trainer.agent.slot_pool.pooled_slot import PooledSlot
from trainer.agent.slot_pool.slot_key import slot_key
from trainer.agent.slot_pool.slot_pool import SlotPool
from trainer.client.addresses import ServiceAddresses

UNAVAILABLE = ActorUnavailableError("The actor is temporarily unavailable", None)


@pytest.mark.usefixtures("killed")
def test_the_agent_extends_a_lease_until_the_slot_has_begun_the_attempt() -> None:
    pool, actor = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), PlayedSlot(STARTING)
    assignment = {"trial": "t-1", "lease": {"token": "a", "seconds": 3000}}
    slot = pool.slots["slot"] = PooledSlot("slot", actor, "key", assigned=(lambda: True, assignment))
    slot.starting = assignment
    assert pool.leases_to_extend() == [assignment]
    assert pool.leases_to_extend() == [], "again only after a third of the lease"
    slot.lease_due_at -= 1001
    assert pool.leases_to_extend() == [assignment]
    slot.lease_due_at = 0
    pool.refresh()
    assert slot.assigned is None
    assert pool.leases_to_extend() == [assignment], "its process imports libraries"
    slot.lease_due_at = 0
    actor.answer = replace(STARTING, starting=False)
    pool.refresh()
    assert pool.leases_to_extend() == [], "the slot extends its lease itself"


def test_an_idle_slot_that_still_removes_checkpoints_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, closed = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), list[str]()
    monkeypatch.setattr(pool, "close", lambda slots: closed.extend(slot.name for slot in slots))
    removing = pooled("removing", runs=None, idle_seconds=9.0, is_removing=True)
    pool.slots = {"removing": removing, "done": pooled("done", runs=None, idle_seconds=9.0)}
    pool.close_idle(5.0)
    assert closed == ["done"]
    removing.is_removing = False
    pool.close_idle(5.0)
    assert closed[1:] == ["removing", "done"]


@pytest.mark.usefixtures("killed")
def test_the_largest_checkpoint_without_room_is_told_once() -> None:
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    for size in (8, 9, None):
        status = replace(STARTING, lost_count=1, bytes_without_room=size)
        pool.slots[f"slot-{size}"] = pooled(f"slot-{size}", actor=PlayedSlot(status))
    pool.refresh()
    assert pool.take_losses()
    assert [pool.take_bytes_without_room(), pool.take_bytes_without_room()] == [9, None]
    pool.slots = {"slot": pooled(actor=PlayedSlot(replace(STARTING, lost_count=0, bytes_without_room=8)))}
    pool.refresh()
    assert (pool.take_losses(), pool.take_bytes_without_room()) == (False, None)


def test_the_slots_of_an_agent_whose_name_begins_alike_are_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["slot.gpu.0a1b2c3d", "slot.gpu.2.0a1b2c3d", "slot.gpu.example.0a1b2c3d", "slot.gpu2.0a1b2c3d"]
    monkeypatch.setattr(cluster, "list_named_actors", lambda: names)
    monkeypatch.setattr("ray.get_actor", lambda name: name)
    pool = SlotPool("gpu", ServiceAddresses("http://127.0.0.1:9"))
    pool.adopt()
    assert list(pool.slots) == [names[0]]


@pytest.mark.parametrize(("silent_seconds", "is_left"), [(1.0, True), (1000.0, False)])
def test_a_slot_that_is_out_of_reach_for_a_moment_is_asked_again(
    killed: list[Any], silent_seconds: float, is_left: bool
) -> None:
    actor = PlayedSlot(UNAVAILABLE)
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    slot = pooled(actor=actor, status_call=actor.status.remote(), status_called_at=SINCE + silent_seconds)
    pool.slots["slot"] = slot
    assert pool.refresh() == ({} if is_left else {("t-1", 1): False})
    assert list(pool.slots) == (["slot"] if is_left else [])
    assert killed == ([] if is_left else [actor])
    assert slot.status_call is None or not is_left


def test_an_adopted_slot_that_is_out_of_reach_at_its_first_call_is_asked_again(killed: list[Any]) -> None:
    pool, actor = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), PlayedSlot(UNAVAILABLE)
    slot = pool.slots["slot"] = PooledSlot("slot", actor)
    assert pool.refresh() == {}
    assert (list(pool.slots), killed) == (["slot"], [])
    actor.answer = STARTING
    pool.refresh()
    assert slot.runs == ("t-1", 1)


class LostRun(PlayedSlot):
    """A slot that is idle, and to which the connection breaks when it is to run something."""

    def __init__(self) -> None:
        super().__init__(IDLE)
        self.run = SimpleNamespace(remote=lambda *_: self._broken)

    def _broken(self) -> bool:
        raise UNAVAILABLE


@pytest.mark.usefixtures("killed")
def test_an_assignment_that_its_slot_never_got_is_lost(to_be_run: dict[str, Any]) -> None:
    pool, actor = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), LostRun()
    slot = pool.slots["slot"] = pooled(actor=actor, runs=None, idle_seconds=0.0, assigned_count=1)
    pool.run(to_be_run, {})
    assert pool.refresh() == {}, "this status may have been on its way before the call"
    assert not slot.is_settled
    assert pool.refresh() == {("t-1", 1): False}
    assert pool.leases_to_extend() == []
    assert slot.is_idle
    assert pool.refresh() == {}, "it is lost once"
    actor.run = SimpleNamespace(remote=lambda *_: lambda: True)
    pool.run(to_be_run, {})
    assert pool.refresh() == {}
    assert not slot.is_settled, "only a status from after the assignment counts"
    actor.answer = replace(STARTING, given_count=2)
    pool.refresh()
    assert slot.is_settled
    assert slot.runs == ("t-1", 1)


@pytest.mark.usefixtures("killed")
def test_an_assignment_that_its_slot_got_is_not_lost_with_the_answer(to_be_run: dict[str, Any]) -> None:
    pool, actor = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), LostRun()
    slot = pool.slots["slot"] = pooled(actor=actor, runs=None, idle_seconds=0.0, assigned_count=1)
    pool.run(to_be_run, {})
    actor.answer = replace(STARTING, given_count=2)
    for _ in range(3):
        assert pool.refresh() == {}
    assert slot.is_settled
    assert slot.runs == ("t-1", 1)


@pytest.mark.usefixtures("killed")
def test_a_drain_that_does_not_reach_the_slot_is_announced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise UNAVAILABLE

    announced, answers = list[list[str]](), [broken, lambda: None]

    def drain(nodes: list[str], _seconds: float) -> Any:
        announced.append(nodes)
        return answers[len(announced) - 1]

    monkeypatch.setattr(slot_pool, "draining_nodes", lambda: {"a": 60.0})
    pool, actor = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), PlayedSlot(IDLE)
    pool.slots["slot"] = pooled(actor=SimpleNamespace(status=actor.status, drain=SimpleNamespace(remote=drain)))
    for _ in range(4):
        pool.refresh()
    assert announced == [["a"], ["a"]]


@pytest.mark.usefixtures("killed")
def test_an_adopted_slot_of_an_earlier_version_runs_what_it_says() -> None:
    pool, status = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), STARTING.to_json()
    for newer in ("began", "starting", "removing", "nodes", "draining", "lost_count", "bytes_without_room"):
        del status[newer]
    del status["failed_disks"]
    actor = SimpleNamespace(status=SimpleNamespace(remote=lambda: lambda: {**status, "of a later version": 1}))
    slot = pool.slots["slot"] = PooledSlot("slot", actor)
    assert pool.refresh() == {}
    assert (slot.key, slot.runs, slot.began, slot.is_removing, slot.is_closing) == (
        "key",
        ("t-1", 1),
        True,
        False,
        False,
    )
    assert not slot.is_idle


def test_what_a_log_would_say_of_a_slot_has_no_secret() -> None:
    assert "s3cr3t" not in repr(pooled(secrets={"KEY": "s3cr3t"}))


@pytest.mark.parametrize(
    "ending",
    [pooled(runs=None), pooled(status_at=SINCE - 1)],
    ids=["ends an attempt", "has not said since then that it goes on"],
)
def test_an_assignment_waits_for_a_slot_with_its_key_that_may_become_idle_soon(ending: PooledSlot) -> None:
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    pool.slots = {"busy": pooled("busy"), "ending": ending}
    assert pool.should_wait(ASSIGNMENT, SINCE)
    pool.slots["idle"] = pooled("idle", runs=None, idle_seconds=0.0)
    assert not pool.should_wait(ASSIGNMENT, SINCE), "an idle slot takes it"


@pytest.mark.parametrize(
    "other",
    [
        pooled(),
        pooled(runs=None, key="another kind"),
        pooled(runs=None, is_closing=True),
        pooled(runs=None, assigned=(None, ASSIGNMENT)),
    ],
    ids=["runs another", "is of another kind", "closes itself", "starts with another"],
)
def test_an_assignment_waits_for_no_slot_that_stays_busy(other: PooledSlot) -> None:
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    pool.slots = {"other": other}
    assert not pool.should_wait(ASSIGNMENT, SINCE)


@pytest.mark.parametrize("is_reserved", [False, True])
def test_idle_slots_make_room_for_one_whose_workers_have_ended(
    monkeypatch: pytest.MonkeyPatch, is_reserved: bool
) -> None:
    """Such as after a failure: another trial may have reserved what they held."""
    groups = {"pg-2": [("b", {"CPU": 2.0})]} | ({"pg-1": [("a", {"CPU": 2.0})]} if is_reserved else {})
    monkeypatch.setattr(node_offer, "PlacementGroups", lambda: SimpleNamespace(of=groups.get))
    monkeypatch.setattr(node_offer, "free_resources", lambda: {"a": {"CPU": 1.0}})
    monkeypatch.setattr(node_offer, "node_labels", dict)
    pool, closed = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9")), list[str]()
    monkeypatch.setattr(pool, "close", lambda slots: closed.extend(slot.name for slot in slots))
    trainer = {"entrypoint": "train:train_fn", "scaling": {"num_workers": 2}}
    assignment = {"trial": "t-1", "attempt": 1, "experiment_id": "x-1", "trainer": trainer}
    actor = SimpleNamespace(run=SimpleNamespace(remote=lambda *_: None))
    same = PooledSlot("same", actor, slot_key(assignment), placement_group="pg-1", idle_seconds=9.0)
    pool.slots = {"other": pooled("other", runs=None, idle_seconds=1.0, placement_group="pg-2"), "same": same}
    pool.run(assignment, {})
    assert closed == ([] if is_reserved else ["other"])
    assert same.assigned == (None, assignment)


def test_the_slot_of_an_elastic_group_is_on_the_agents_node_because_it_outlives_those_of_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "own"))
    monkeypatch.setattr(node_offer, "free_resources", lambda: {"own": {"CPU": 1.0}, "large": {"CPU": 8.0}})
    monkeypatch.setattr(node_offer, "node_labels", dict)
    monkeypatch.setattr(node_offer, "PlacementGroups", lambda: None)
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    assert pool._node_for_slot({"num_workers": 1}) == "large"
    assert pool._node_for_slot({"num_workers": 1, "max_workers": 4}) == "own"
    pool._draining = {"own": 30.0}
    assert pool._node_for_slot({"num_workers": 1, "max_workers": 4}) == "large", "the agent's node is going, too"
    pool._draining = {}
    pool._withheld.add("own", "its disk is full")
    assert pool._node_for_slot({"num_workers": 1, "max_workers": 4}) == "large", "the slot finds no room on its node"


def test_what_an_elastic_group_is_about_to_take_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_offer, "free_resources", lambda: {"a": {"CPU": 8.0}})
    monkeypatch.setattr(node_offer, "node_labels", dict)
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    pool.slots = {"starts": pooled(scaling={"num_workers": 1, "max_workers": 6})}
    assert pool.offer().unclaimed(NOTHING_YET) == {"a": {"CPU": 2.0}}


def test_what_is_freed_is_not_offered_while_a_group_that_does_not_fit_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = {"gpus": {"CPU": 4.0, "GPU": 4.0}, "cpus": {"CPU": 4.0}}
    free = {"gpus": {"CPU": 3.0, "GPU": 4.0}, "cpus": {"CPU": 2.0}}
    monkeypatch.setattr(node_offer, "free_resources", lambda: free)
    monkeypatch.setattr(node_offer, "total_resources", lambda: total)
    monkeypatch.setattr(node_offer, "node_labels", dict)
    pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"))
    waits = {"num_workers": 4, "resources_per_worker": {"CPU": 1, "GPU": 1}}
    pool.slots = {"waits": pooled(scaling=waits)}
    assert pool.offer().unclaimed(NOTHING_YET) == {"gpus": {"CPU": 0.0, "GPU": 0.0}, "cpus": {"CPU": 2.0}}
    pool.slots = {"never fits": pooled(scaling={**waits, "num_workers": 5})}
    assert pool.offer().unclaimed(NOTHING_YET) == free
