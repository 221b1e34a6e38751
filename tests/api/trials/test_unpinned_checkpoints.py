"""Checkpoints that are unpinned when their trial has ended, and there are newer ones."""

from datetime import timedelta
from typing import Any

import pytest

from service.background.checkpoint_retention import CheckpointRetention
from service.operations.checkpoints import retention_plan
from service.settings import Settings
from service.store.checkpoints.checkpoints import experiments_with_retention
from tests.api.trials.test_retention import an_experiment, deletions, retain, save, settled, start
from tests.conftest import Api, running

pytestmark = pytest.mark.slow

__all__ = ["settled"]


def unpinned_before_settled(service: Api, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """Unpin the older checkpoint right after its trial's end. Return its URI, and the answer."""
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(hours=1))
    an_experiment(service, None)
    held = start(service)
    first = save(held, 0.1)
    service.call("PUT", f"/v1/trials/{held.trial}/checkpoints/1/pin", 200)
    save(held, 0.2)
    held.finish()
    return first, service.call("DELETE", f"/v1/trials/{held.trial}/checkpoints/1/pin", 200)


def test_an_unpinned_checkpoint_of_an_ended_trial_is_removed_if_there_are_newer_ones(service: Api) -> None:
    an_experiment(service, None)
    held = start(service)
    first = save(held, 0.1)
    service.call("PUT", f"/v1/trials/{held.trial}/checkpoints/1/pin", 200)
    second = save(held, 0.2)
    held.finish()
    shown = service.call("DELETE", f"/v1/trials/{held.trial}/checkpoints/1/pin", 200)
    assert "newer ones" in shown["removed_why"]
    assert set(deletions(service)) == {first}
    assert held.shown()["checkpoint"]["uri"] == second


def test_a_checkpoint_that_is_unpinned_right_after_its_trials_end_is_removed_later(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, shown = unpinned_before_settled(service, monkeypatch)
    assert shown["removed_at"] is None
    loop = CheckpointRetention(service.app.state.context)
    loop.run_once()
    assert not deletions(service)
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(0))
    loop.run_once()
    assert set(deletions(service)) == {first}
    loop.run_once()
    with service.app.state.context.database.read() as session:
        assert experiments_with_retention(session) == []


def test_a_checkpoint_that_is_unpinned_before_a_restart_is_removed_after_it(
    service: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = unpinned_before_settled(service, monkeypatch)
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(0))
    with running(settings) as restarted:
        retain(restarted)
        assert set(deletions(restarted)) == {first}
