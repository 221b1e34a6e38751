"""How an agent ends: what it gives back, and its error messages. Imports Ray, and starts none."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.wire import Assignment, FailureKind

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class NoPrestart:
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class NoSlots:
    """A pool on a cluster of one node that starts nothing. `should_wait`: a slot is always about to become idle."""

    def __init__(self, error: Exception | None = None) -> None:
        self.slots: dict[str, Any] = {}
        self.assigned: list[str] = []
        self.asked = threading.Event()
        self.prestart = NoPrestart()
        self._error = error
        self.has_losses = False

    def should_wait(self, _assignment: dict[str, Any], _since: float) -> bool:
        self.asked.set()
        return True

    def run(self, assignment: dict[str, Any], _secrets: object = None) -> None:
        self.assigned.append(assignment["trial"])

    def adopt(self) -> None:
        pass

    def refresh(self) -> dict[Any, bool]:
        if self._error is not None:
            raise self._error
        return {}

    def take_losses(self) -> bool:
        found, self.has_losses = self.has_losses, False
        return found

    def take_bytes_without_room(self) -> None:
        return None

    def leases_to_extend(self) -> list[Any]:
        return []

    def close_idle(self, _seconds: float) -> None:
        pass

    def close_all(self) -> None:
        pass

    def offer(self) -> Any:
        return SimpleNamespace(nodes=lambda: [{"total": {"CPU": 1}, "free": {"CPU": 1}}])


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[FakeService]:
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@pytest.fixture
def run(alone: FakeService, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run_agent` without a cluster."""
    from trainer.agent import agent  # noqa: PLC0415 - heavy

    def run_with(pool: NoSlots, stop: threading.Event) -> None:
        monkeypatch.setattr(agent, "connect", lambda *_arguments: None)
        monkeypatch.setattr(agent, "ray", SimpleNamespace(shutdown=lambda: None))
        monkeypatch.setattr(agent, "SlotPool", lambda *_arguments, **_options: pool)
        agent.run_agent(alone.url, "ending", "head:6379", stop=stop)

    return run_with


def working(run: Any, pool: NoSlots) -> tuple[threading.Thread, threading.Event]:
    """An agent, and the event that stops it."""
    stop = threading.Event()
    agent = threading.Thread(target=run, args=(pool, stop))
    agent.start()
    return agent, stop


def test_an_assignment_that_arrives_while_the_agent_ends_is_given_back(
    alone: FakeService, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The claim must still wait when the assignment comes.
    monkeypatch.setattr("trainer.agent.agent.IDLE_WAIT_SECONDS", 25.0)
    monkeypatch.setattr("trainer.agent.agent.LAST_CLAIM_SECONDS", PATIENCE_SECONDS)
    agent, stop = working(run, NoSlots())
    alone.wait_for(lambda: any(claim.nodes for claim in alone.claims))
    stop.set()
    alone.wait_for(lambda: alone.left)  # which answers the claim, where the service is not of an earlier version
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    error = alone.finished(trial).error
    agent.join()
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED


def test_an_assignment_that_waits_for_a_slot_is_given_back_when_the_agent_ends(
    alone: FakeService, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.agent.agent.SETTLE_SECONDS", PATIENCE_SECONDS)
    pool = NoSlots()
    agent, stop = working(run, pool)
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    assert pool.asked.wait(PATIENCE_SECONDS)
    stop.set()
    error = alone.finished(trial).error
    agent.join()
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED
    assert pool.assigned == []


def test_an_assignment_waits_for_a_slot_only_for_a_limited_time(
    alone: FakeService, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.agent.agent.SETTLE_SECONDS", 0.5)
    pool = NoSlots()
    agent, stop = working(run, pool)
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    until(lambda: pool.assigned, "the assignment to be taken")
    stop.set()
    agent.join()
    assert pool.assigned == [trial]
    assert pool.asked.is_set()


class StartingSlot(NoSlots):
    """A pool with a slot that still starts, whose lease is due once, as soon as `is_due` is set."""

    def __init__(self, assignment: dict[str, Any]) -> None:
        super().__init__()
        self.is_due = threading.Event()
        self._due = [assignment]

    def leases_to_extend(self) -> list[Any]:
        return [self._due.pop()] if self._due and self.is_due.is_set() else []


def test_the_lease_of_a_starting_slot_is_extended_while_the_claim_gets_no_answer(
    alone: FakeService, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, released, take = alone.add_trial({"entrypoint": "train:train_fn"}), threading.Event(), alone.claim
    pool = StartingSlot(alone.assign(trial))

    def claim(agent: str, body: bytes) -> Assignment | None:
        if b'"free"' in body:  # not the first one, which takes the name
            pool.is_due.set()
            released.wait()
            return None
        return take(agent, body)

    monkeypatch.setattr(alone, "claim", claim)
    agent, stop = working(run, pool)
    try:
        alone.wait_for(lambda: alone.heartbeats[trial], what="the lease to be extended")
    finally:
        released.set()
        stop.set()
        agent.join()


@pytest.mark.parametrize(
    "failing", [(200, b'{"status": "ok"}'), (200, b""), (301, b""), (404, b'{"type": "about:blank"}')]
)
def test_an_agent_waits_while_another_program_answers(
    alone: FakeService, run: Any, caplog: pytest.LogCaptureFixture, failing: tuple[int, bytes]
) -> None:
    alone.failing = failing
    pool = NoSlots()
    agent, stop = working(run, pool)
    trial = alone.add_trial({"entrypoint": "train:train_fn"})
    until(lambda: caplog.messages, "the agent to say that another program answers")
    alone.failing = None
    until(lambda: pool.assigned, "the assignment to be taken")
    stop.set()
    agent.join()
    assert pool.assigned == [trial]
    assert f"/claim answered {failing[0]} without a body of Paceline's" in caplog.messages[0]


def test_a_refused_agent_ends_with_an_error_message(alone: FakeService, run: Any) -> None:
    alone.failing = (401, b'{"type": "urn:paceline:error:unauthorized", "detail": "no such token"}')
    with pytest.raises(SystemExit, match=r"does not let agent ending work: 401 unauthorized: no such token"):
        run(NoSlots(), threading.Event())


def test_an_agent_that_loses_its_cluster_ends_with_an_error_message(run: Any) -> None:
    from ray.exceptions import RaySystemError  # noqa: PLC0415 - heavy

    from trainer.agent.cluster import ClusterUnreachable  # noqa: PLC0415 - heavy

    with pytest.raises(ClusterUnreachable, match=r"the Ray cluster at head:6379 is lost: .*GCS does not answer"):
        run(NoSlots(RaySystemError("GCS does not answer")), threading.Event())
