"""Ray as the slot pool sees it, in tests that start none."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.agent.played_slot import ASSIGNMENT
from trainer.agent.slot_pool import node_offer, slot_pool


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Ray as the pool sees it: every call of a PlayedSlot is answered. Returns the actors that are killed."""
    found: list[Any] = []
    monkeypatch.setattr("ray.wait", lambda calls, **_: (calls, []))
    monkeypatch.setattr("ray.get", lambda call: call())
    monkeypatch.setattr("ray.kill", found.append)
    monkeypatch.setattr(slot_pool, "draining_nodes", dict)
    return found


@pytest.fixture
def to_be_run(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An assignment for an idle slot whose workers still live."""
    monkeypatch.setattr(node_offer, "PlacementGroups", lambda: SimpleNamespace(of=lambda _group: []))
    lease = {"token": "a", "seconds": 3000}
    return {**ASSIGNMENT, "trial": "t-1", "attempt": 1, "experiment": "x", "lease": lease}
