"""An attempt on its way to a slot that takes long to start."""

from trainer.fleet import Fleet, Member


def test_the_lease_of_an_attempt_is_due_until_its_slot_has_it() -> None:
    fleet = Fleet("an-agent", "http://127.0.0.1:9")
    assignment = {"trial": "t-1", "lease": {"token": "a", "seconds": 30}}
    member = fleet.members["slot"] = Member("slot", None, given=(None, assignment))
    assert fleet.unheard() == [assignment]
    assert fleet.unheard() == [], "again only after a third of the lease"
    member.beat_at -= 11
    assert fleet.unheard() == [assignment]
    member.beat_at, member.given = 0, None
    assert fleet.unheard() == [], "the slot extends its lease itself"
