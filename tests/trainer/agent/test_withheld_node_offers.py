"""An agent offers nothing of a node whose disk is full, and tells its slots to use other nodes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.agent.played_slot import (
    IDLE,
    NOTHING_YET,
    STARTING,
    PlayedSlot,
    pooled,
)
from trainer.agent.slot_pool import node_offer, slot_pool
from trainer.agent.slot_pool.slot_key import slot_key
from trainer.agent.slot_pool.slot_pool import SlotPool
from trainer.client.addresses import ServiceAddresses
from trainer.slot.nodes.withheld_nodes import WITHHELD_SECONDS
from trainer.slot.slot_status import SlotStatus
from trainer.wire import Node


class TwoNodes:
    """A cluster whose node `full` has a full disk. Its `now` is the pool's clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        each = {"full": {"CPU": 8.0}, "other": {"CPU": 8.0}}
        patch.setattr(node_offer, "total_resources", lambda: each)
        patch.setattr(node_offer, "free_resources", lambda: {node: dict(has) for node, has in each.items()})
        patch.setattr(node_offer, "node_labels", dict)
        patch.setattr(slot_pool, "node_address", lambda node: f"address-of-{node}")
        patch.setattr(node_offer, "PlacementGroups", lambda: NOTHING_YET)
        self.pool = SlotPool("an-agent", ServiceAddresses("http://127.0.0.1:9"), clock=lambda: self.now)

    def add(self, name: str, status: SlotStatus) -> "WithholdingSlot":
        actor = WithholdingSlot(status)
        self.pool.slots[name] = pooled(name, actor=actor, runs=None)
        return actor

    def offered(self) -> list[tuple[Any, str | None]]:
        return [(Node.model_validate(one).free, one.get("withheld")) for one in self.pool.offer().nodes()]


class WithholdingSlot(PlayedSlot):
    def __init__(self, status: SlotStatus) -> None:
        super().__init__(status)
        self.told: list[Any] = []
        self.withhold = SimpleNamespace(remote=lambda nodes: self.told.append(("withhold", nodes)))
        self.run = SimpleNamespace(remote=lambda *_: self.told.append("run"))


FULL_DISK = {
    "node": "full",
    "number": 1,
    "reason": "the package cannot be unpacked",
    "seconds": WITHHELD_SECONDS,
}
FREE: Any = ({"CPU": 8.0}, None)


@pytest.mark.usefixtures("killed")
def test_a_node_whose_disk_is_full_is_not_offered_for_some_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = TwoNodes(monkeypatch)
    cluster.add("found it", replace(IDLE, failed_disks=[FULL_DISK]))
    other = cluster.add("other", IDLE)
    assert cluster.offered() == [FREE, FREE]
    for _ in range(2):
        cluster.pool.refresh()
        withheld: Any = ({}, "node address-of-full: the package cannot be unpacked")
        assert cluster.offered() == [withheld, FREE]
    assert other.told == [("withhold", {"full": WITHHELD_SECONDS})], "Ray places its next workers elsewhere"
    said = "node address-of-full gets no new trial for 300 s: the package cannot be unpacked"
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [said]
    cluster.now += WITHHELD_SECONDS - 1
    cluster.pool.refresh()
    assert cluster.offered() == [withheld, FREE]
    cluster.now += 1
    cluster.pool.refresh()
    assert cluster.offered() == [FREE, FREE], "the same failure does not count again"
    cluster.pool.slots["other"].actor.answer = replace(IDLE, failed_disks=[FULL_DISK])
    cluster.pool.refresh()
    assert cluster.offered() == [withheld, FREE]


@pytest.mark.usefixtures("killed")
def test_an_adopted_slot_says_for_how_long_a_node_is_still_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = TwoNodes(monkeypatch)
    cluster.add("adopted", replace(IDLE, failed_disks=[FULL_DISK | {"number": 7, "seconds": 20.0}]))
    cluster.pool.refresh()
    assert cluster.offered()[0][0] == {}
    cluster.now += 20
    cluster.pool.slots["adopted"].actor.answer = IDLE
    cluster.pool.refresh()
    assert cluster.offered() == [FREE, FREE]


@pytest.mark.usefixtures("killed")
def test_a_slot_knows_which_nodes_are_withheld_before_its_assignment(
    monkeypatch: pytest.MonkeyPatch, to_be_run: dict[str, Any]
) -> None:
    cluster = TwoNodes(monkeypatch)
    cluster.add("found it", replace(STARTING, failed_disks=[FULL_DISK]))
    cluster.pool.refresh()
    new = cluster.add("new", IDLE)
    cluster.pool.slots["new"].idle_seconds = 0.0
    monkeypatch.setattr(node_offer, "PlacementGroups", lambda: SimpleNamespace(of=lambda _group: []))
    cluster.pool.run(to_be_run, {})
    assert new.told == [("withhold", {"full": WITHHELD_SECONDS}), "run"]


@pytest.mark.usefixtures("killed")
def test_idle_slots_make_room_for_one_whose_workers_are_on_a_withheld_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves that node, and needs what the idle slot holds on the other one."""
    cluster, closed = TwoNodes(monkeypatch), list[str]()
    pool, each = cluster.pool, {"CPU": 8.0}
    pool._withheld.add("full")
    groups = {"pg-1": [("full", each)], "pg-2": [("other", each)]}
    reserving: Any = SimpleNamespace(of=groups.get)
    monkeypatch.setattr(node_offer, "PlacementGroups", lambda: reserving)
    monkeypatch.setattr(node_offer, "free_resources", lambda: {} if not closed else {"other": dict(each)})
    monkeypatch.setattr(pool, "close", lambda slots: closed.extend(pool.slots.pop(slot.name).name for slot in slots))
    trainer = {"entrypoint": "train:train_fn", "scaling": {"num_workers": 8}}
    assignment = {"trial": "t-1", "attempt": 1, "experiment_id": "x-1", "trainer": trainer}
    idle: dict[str, Any] = {"actor": WithholdingSlot(IDLE), "runs": None, "idle_seconds": 1.0}
    same = {"key": slot_key(assignment), "scaling": trainer["scaling"], "placement_group": "pg-1"}
    pool.slots = {"other": pooled("other", placement_group="pg-2", **idle), "same": pooled("same", **{**idle, **same})}
    pool.run(assignment, {})
    assert closed == ["other"]
    assert pool.offer().unclaimed(reserving) == {"other": {"CPU": 0.0}}
