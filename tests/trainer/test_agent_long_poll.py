"""An attempt on its way to a slot that takes long to start, or that still ends another."""

from typing import Any

import pytest

from trainer.agent.slot_pool import PooledSlot, SlotPool, key_of

ASSIGNMENT = {"experiment_id": "x-1", "trainer": {"entrypoint": "train:train_fn"}}
SINCE = 10.0


def test_the_lease_of_an_attempt_is_due_until_its_slot_has_it() -> None:
    fleet = SlotPool("an-agent", "http://127.0.0.1:9")
    assignment = {"trial": "t-1", "lease": {"token": "a", "seconds": 30}}
    member = fleet.members["slot"] = PooledSlot("slot", None, given=(None, assignment))
    assert fleet.unheard() == [assignment]
    assert fleet.unheard() == [], "again only after a third of the lease"
    member.beat_at -= 11
    assert fleet.unheard() == [assignment]
    member.beat_at, member.given = 0, None
    assert fleet.unheard() == [], "the slot extends its lease itself"


def member(name: str = "slot", **fields: Any) -> PooledSlot:
    return PooledSlot(name, None, **{"key": key_of(ASSIGNMENT), "runs": ("t-1", 1), "told_at": SINCE, **fields})


@pytest.mark.parametrize(
    "ending",
    [member(runs=None), member(told_at=SINCE - 1)],
    ids=["ends an attempt", "has not said since then that it goes on"],
)
def test_an_assignment_waits_for_a_slot_of_its_kind_that_may_become_idle_at_once(ending: PooledSlot) -> None:
    fleet = SlotPool("an-agent", "http://127.0.0.1:9")
    fleet.members = {"busy": member("busy"), "ending": ending}
    assert fleet.unsettled(ASSIGNMENT, SINCE)
    fleet.members["idle"] = member("idle", runs=None, idle_seconds=0.0)
    assert not fleet.unsettled(ASSIGNMENT, SINCE), "an idle slot takes it"


@pytest.mark.parametrize(
    "other",
    [
        member(),
        member(runs=None, key="another kind"),
        member(runs=None, closing=True),
        member(runs=None, given=(None, ASSIGNMENT)),
    ],
    ids=["runs another", "is of another kind", "closes itself", "starts with another"],
)
def test_an_assignment_waits_for_no_slot_that_stays_busy(other: PooledSlot) -> None:
    fleet = SlotPool("an-agent", "http://127.0.0.1:9")
    fleet.members = {"other": other}
    assert not fleet.unsettled(ASSIGNMENT, SINCE)
