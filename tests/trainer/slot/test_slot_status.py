"""A slot's status is read by agents of other versions."""

from dataclasses import fields

from trainer.slot.slot_status import SlotStatus

OF_THE_FIRST_VERSION = {
    "name": "slot.local.0a1b2c3d",
    "pid": 7,
    "key": "a key",
    "scaling": {"num_workers": 2},
    "trial": "t-1",
    "attempt": 2,
    "idle_seconds": None,
    "placement_group": "0a1b",
    "given_count": 1,
    "closing": False,
}
NEWER = {
    "began": False,
    "starting": True,
    "removing": True,
    "nodes": ["a"],
    "draining": True,
    "lost_count": 3,
    "bytes_without_room": 8,
    "failed_disks": [{"node": "a", "number": 1, "reason": "full", "seconds": 9.0}],
}


def test_the_names_that_other_versions_know_do_not_change() -> None:
    """If this fails because of a new field: add it to NEWER, and give it a default."""
    assert {field.name for field in fields(SlotStatus)} == {*OF_THE_FIRST_VERSION, *NEWER}


def test_what_a_slot_says_is_what_its_agent_reads() -> None:
    status = SlotStatus.from_json({**OF_THE_FIRST_VERSION, **NEWER})
    assert status.to_json() == {**OF_THE_FIRST_VERSION, **NEWER}
    assert SlotStatus.from_json(status.to_json()) == status


def test_a_slot_of_an_earlier_version_may_have_begun_what_it_runs() -> None:
    status = SlotStatus.from_json(OF_THE_FIRST_VERSION)
    assert status.runs == ("t-1", 2)
    assert (status.began, status.starting, status.removing, status.lost_count) == (True, False, False, 0)
    assert status.bytes_without_room is None


def test_an_agent_ignores_what_only_a_later_version_knows() -> None:
    assert SlotStatus.from_json({**OF_THE_FIRST_VERSION, "new": 1}) == SlotStatus.from_json(OF_THE_FIRST_VERSION)


def test_a_slot_without_an_assignment_runs_nothing() -> None:
    assert SlotStatus.from_json({**OF_THE_FIRST_VERSION, "trial": None, "attempt": None}).runs is None
