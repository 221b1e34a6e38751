"""How an agent finds the attempts that got lost on their way. Imports Ray, and starts none."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.trainer.agent.test_agent_shutdown import NoSlots, alone, run  # noqa: F401 - fixtures
from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.wire import Claim, Deletion, PartlyNeededFolder

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FIRST, SECOND = ("t-first", 1), ("t-second", 3)


def test_checkpoints_that_no_trial_can_resume_from_are_removed(alone: FakeService, run: Any, tmp_path: Path) -> None:  # noqa: F811
    run_folder, kept = tmp_path / "x-1" / "trial-0-attempt-1", tmp_path / "x-1" / "trial-0-attempt-2"
    for folder in (run_folder, kept):
        (folder / "checkpoint_000001").mkdir(parents=True)
    alone.obsolete = [str(tmp_path / "gone"), str(run_folder)]
    with running(run):
        until(lambda: not run_folder.exists(), "the folder is gone")
    assert kept.exists()


def test_what_a_cut_off_attempt_has_saved_in_part_is_removed(alone: FakeService, run: Any, tmp_path: Path) -> None:  # noqa: F811
    run_folder = tmp_path / "x-1" / "trial-0-attempt-1"
    saved, cut_off = run_folder / "checkpoint_000001", run_folder / "checkpoint_000002"
    for folder in (saved, cut_off):
        folder.mkdir(parents=True)
    alone.partly_needed = [PartlyNeededFolder(directory=str(run_folder), keep=[saved.name])]
    with running(run):
        until(lambda: not cut_off.exists(), "what is not known is gone")
    assert saved.exists()


def test_an_agent_deletes_what_it_is_given_and_says_so(alone: FakeService, run: Any, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "digits-x-1"
    (folder / "trial-0-attempt-1" / "checkpoint_000001").mkdir(parents=True)
    alone.deletions[7] = Deletion(id=7, directory=str(folder))
    with running(run):
        until(lambda: not folder.exists(), "the folder is gone")
        until(lambda: not alone.deletions, "the service knows")


def test_an_agent_whose_storage_is_away_says_so_with_its_first_offer_and_gets_no_trial(
    alone: FakeService,  # noqa: F811
    run: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainer.agent import storage_probe  # noqa: PLC0415 - heavy

    monkeypatch.setattr(storage_probe, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr("trainer.agent.agent.FIRST_PROBE_SECONDS", PATIENCE_SECONDS)
    mount = tmp_path / "mount"
    mount.write_text("not a directory")
    alone.storage = str(mount / "checkpoints")
    trial = alone.add_trial({"entrypoint": "train:train_fn"})

    def offers() -> list[Claim]:
        return alone.claims[1:]  # the first one only takes the name

    with running(run):
        until(offers, "the agent claims")
        assert "mount/checkpoints cannot be written" in str(offers()[0].storage_error)
        assert [one.trial for one in alone.queue] == [trial]
        mount.unlink()
        until(lambda: not alone.queue, "the trial is claimed")


def test_after_a_loss_the_storage_is_probed_before_the_next_offer(
    alone: FakeService,  # noqa: F811
    run: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainer.agent import storage_probe  # noqa: PLC0415 - heavy

    monkeypatch.setattr(storage_probe, "PROBE_SECONDS", 10.0 * PATIENCE_SECONDS)
    mount = tmp_path / "mount"
    alone.storage = str(mount)
    pool = NoSlots()
    with running(run, pool):
        until(lambda: mount.exists() and len(alone.claims) > 1, "the agent has probed, and offers its nodes")
        mount.rename(tmp_path / "unmounted")
        mount.write_text("not a directory")
        pool.has_losses = True
        until(lambda: alone.claims[-1].storage_error, "the agent says that its storage is away")


@contextmanager
def running(start: Any, pool: NoSlots | None = None) -> Iterator[None]:
    """An agent without slots, in a thread."""
    stop = threading.Event()
    agent = threading.Thread(target=start, args=(pool or NoSlots(), stop))
    agent.start()
    try:
        yield
    finally:
        stop.set()
        agent.join()


def pooled(name: str = "slot", **fields: Any) -> Any:
    from trainer.agent.slot_pool.pooled_slot import PooledSlot  # noqa: PLC0415 - heavy

    return PooledSlot(name, actor=None, **fields)


def audit(held: set[tuple[str, int]], *slots: Any) -> Any:
    from trainer.agent.lost_attempts import LostAttemptAudit  # noqa: PLC0415 - heavy

    return LostAttemptAudit(held, slots)


def by_name(*slots: Any) -> dict[str, Any]:
    return {one.name: one for one in slots}


def says(one: Any, runs: tuple[str, int] | None, idle_seconds: float | None = None) -> None:
    one.runs, one.idle_seconds, one.status_at = runs, idle_seconds, time.monotonic()


def test_attempts_of_a_former_agent_that_no_slot_runs_are_lost(alone: FakeService, run: Any) -> None:  # noqa: F811
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    nodes = [{"total": {"CPU": 1}, "free": {"CPU": 1}}]
    claim = {"request_id": "the former agent's last", "nodes": nodes, "wait_seconds": 5}
    assert (
        requests.post(f"{alone.url}/v1/agents/ending/claim", json=claim, timeout=PATIENCE_SECONDS).json()["trial"]
        == trial
    )
    stop = threading.Event()
    agent = threading.Thread(target=run, args=(NoSlots(), stop))
    agent.start()
    try:
        alone.wait_for(lambda: trial in alone.lost)
    finally:
        stop.set()
        agent.join()
    assert [(one.trial, one.attempt) for claim in alone.claims for one in claim.lost] == [(trial, 1)]


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
        requests.post(f"{alone.url}/v1/agents/ending/claim", json=claim, timeout=PATIENCE_SECONDS)
    stop, ended = threading.Event(), ("t-long-ended", 7)
    agent = threading.Thread(target=run, args=(OneDied(*((trial, 1) for trial in trials), ended), stop))
    agent.start()
    try:
        alone.wait_for(lambda: alone.lost)
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
