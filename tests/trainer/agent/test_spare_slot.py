"""When a slot starts before there is work for it. Starts no Ray."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from trainer.agent.slot_pool import spare_slot
from trainer.agent.slot_pool.spare_slot import SpareSlot
from trainer.client.addresses import ServiceAddresses


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the spare slots that have started, all on the only node, `own`."""
    names, numbers = list[str](), count()
    actor = SimpleNamespace(status=SimpleNamespace(remote=object))

    def start(*_arguments: Any, **_options: Any) -> tuple[str, Any]:
        names.append(f"spare-{next(numbers)}")
        return names[-1], actor

    monkeypatch.setattr(spare_slot, "start_slot", start)
    monkeypatch.setattr(spare_slot, "total_resources", lambda: {"own": {"CPU": 1.0}})
    monkeypatch.setattr("ray.wait", lambda _calls, **_: ([], []))
    return names


def test_the_spare_slot_stays_the_only_one_when_a_trial_starts_on_another_node(started: list[str]) -> None:
    spare = SpareSlot("slot.an-agent.", ServiceAddresses("http://127.0.0.1:9"), {}, is_wanted=True)
    spare.refresh(pool_is_empty=True)
    assert spare.take("another") is None
    spare.refresh(pool_is_empty=True)
    assert started == ["spare-0"]
    taken = spare.take("own")
    assert taken is not None
    assert taken[0] == "spare-0"
    spare.refresh(pool_is_empty=False)
    assert started == ["spare-0"], "the pool has a slot"
    spare.refresh(pool_is_empty=True)
    assert started == ["spare-0", "spare-1"]


def test_a_spare_slot_that_has_died_is_replaced_after_the_next_trial(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(_call: Any) -> None:
        raise RayActorError

    spare = SpareSlot("slot.an-agent.", ServiceAddresses("http://127.0.0.1:9"), {}, is_wanted=True)
    spare.refresh(pool_is_empty=True)
    spare.refresh(pool_is_empty=True)
    monkeypatch.setattr("ray.wait", lambda calls, **_: (calls, []))
    monkeypatch.setattr("ray.get", died)
    spare.refresh(pool_is_empty=True)
    assert started == ["spare-0"]
    assert spare.take("own") is None
    spare.refresh(pool_is_empty=True)
    assert started == ["spare-0", "spare-1"]
