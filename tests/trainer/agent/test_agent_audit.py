"""How an agent finds the attempts that got lost on their way. Imports Ray, and starts none."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.trainer.agent.test_agent_shutdown import NoSlots, alone, run  # noqa: F401 - fixtures
from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FIRST, SECOND = ("t-first", 1), ("t-second", 3)


def test_checkpoints_that_no_trial_can_resume_from_are_removed(alone: FakeService, run: Any, tmp_path: Path) -> None:  # noqa: F811
    run_folder, kept = tmp_path / "x-1" / "trial-0-attempt-1", tmp_path / "x-1" / "trial-0-attempt-2"
    for folder in (run_folder, kept):
        (folder / "checkpoint_000001").mkdir(parents=True)
    alone.obsolete = [str(tmp_path / "gone"), str(run_folder)]
    stop = threading.Event()
    agent = threading.Thread(target=run, args=(NoSlots(), stop))
    agent.start()
    try:
        until(lambda: not run_folder.exists(), "the folder is gone", 20)
    finally:
        stop.set()
        agent.join()
    assert kept.exists()


def pooled(name: str = "slot", **fields: Any) -> Any:
    from trainer.agent.slot_pool import PooledSlot  # noqa: PLC0415 - heavy

    return PooledSlot(name, actor=None, **fields)


def audit(held: set[tuple[str, int]], *slots: Any) -> Any:
    from trainer.agent.audit import Audit  # noqa: PLC0415 - heavy

    return Audit(held, slots)


def by_name(*slots: Any) -> dict[str, Any]:
    return {one.name: one for one in slots}


def says(one: Any, runs: tuple[str, int] | None, idle_seconds: float | None = None) -> None:
    one.runs, one.idle_seconds, one.status_at = runs, idle_seconds, time.monotonic()


def test_attempts_of_a_former_agent_that_no_slot_runs_are_lost(alone: FakeService, run: Any) -> None:  # noqa: F811
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    nodes = [{"total": {"CPU": 1}, "free": {"CPU": 1}}]
    claim = {"request_id": "the former agent's last", "nodes": nodes, "wait_seconds": 5}
    assert requests.post(f"{alone.url}/v1/agents/ending/claim", json=claim, timeout=10).json()["trial"] == trial
    stop = threading.Event()
    agent = threading.Thread(target=run, args=(NoSlots(), stop))
    agent.start()
    try:
        alone.wait_for(lambda: trial in alone.lost, 20)
    finally:
        stop.set()
        agent.join()
    assert [(one.trial, one.attempt) for one in alone.claims[-1].lost or alone.claims[-2].lost] == [(trial, 1)]


class OneDied(NoSlots):
    """Its slots have died that ran these attempts; only the first attempt's workers had begun."""

    def __init__(self, *attempts: tuple[str, int]) -> None:
        super().__init__()
        self._died: dict[Any, bool] = {one: number == 0 for number, one in enumerate(attempts)}

    def refresh(self) -> dict[Any, bool]:
        died, self._died = self._died, {}
        return died


def test_the_attempt_of_a_dead_slot_is_lost_unless_it_had_ended(alone: FakeService, run: Any, caplog: Any) -> None:  # noqa: F811
    alone.parallelism = 2
    trials = [alone.add_trial({"entrypoint": "train:train_fn"}) for _ in range(2)]
    nodes = [{"total": {"CPU": 1}, "free": {"CPU": 1}}]
    for trial in trials:
        claim = {"request_id": f"for {trial}", "nodes": nodes}
        requests.post(f"{alone.url}/v1/agents/ending/claim", json=claim, timeout=10)
    stop, ended = threading.Event(), ("t-long-ended", 7)
    agent = threading.Thread(target=run, args=(OneDied(*((trial, 1) for trial in trials), ended), stop))
    agent.start()
    try:
        alone.wait_for(lambda: alone.lost, 20)
    finally:
        stop.set()
        agent.join()
    [claimed_lost] = [claim.lost for claim in alone.claims if claim.lost]
    assert {(one.trial, one.began) for one in claimed_lost} == {(trials[0], True), (trials[1], False)}
    assert "t-long-ended" not in caplog.text


def test_a_slot_between_two_attempts_is_asked_until_it_names_its_attempt() -> None:
    slot = pooled()
    looking = audit({FIRST, SECOND}, slot)
    says(slot, None)
    assert looking.lost(by_name(slot)) is None
    says(slot, SECOND)
    assert looking.lost(by_name(slot)) == {FIRST}


def test_a_status_from_before_the_services_answer_does_not_count() -> None:
    slot = pooled()
    says(slot, FIRST)
    looking = audit({SECOND}, slot)
    assert looking.lost(by_name(slot)) is None
    says(slot, SECOND)
    assert looking.lost(by_name(slot)) == set()


def test_an_attempt_that_ends_during_the_audit_does_not_make_the_slots_next_one_lost() -> None:
    slot, slow = pooled("slot"), pooled("slow")
    looking = audit({FIRST}, slot, slow)
    says(slot, FIRST)
    assert looking.lost(by_name(slot, slow)) is None
    says(slot, SECOND)
    says(slow, None, idle_seconds=1.0)
    assert looking.lost(by_name(slot, slow)) == set()


def test_an_assignment_that_a_closing_slot_refused_is_on_the_slot_that_got_it_next() -> None:
    closing = pooled("closing", runs=FIRST)
    looking = audit({FIRST}, closing)
    assert looking.lost(by_name(pooled("new", runs=FIRST, assigned=(None, {})))) == set()


def test_a_slot_that_died_before_it_answered_runs_nothing() -> None:
    assert audit({FIRST}, pooled()).lost({}) == {FIRST}


def test_attempts_of_the_same_trial_are_distinguished() -> None:
    slot = pooled()
    looking = audit({("t", 1), ("t", 2)}, slot)
    says(slot, ("t", 2))
    assert looking.lost(by_name(slot)) == {("t", 1)}
