"""What is read of dead workers whose node does not answer. Starts no Ray."""

import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    RuntimeEnvSetupError,
    TaskUnschedulableError,
    WorkerCrashedError,
)

from tests.trainer.fake_service import PATIENCE_SECONDS
from tests.trainer.slot.attempt.played_attempt import STARTED
from trainer.slot.attempt.attempt_state import Killed, Preempted, Running, State
from trainer.slot.attempt.ranks import Ranks
from trainer.slot.nodes import dead_workers
from trainer.worker.failures import USER_ERROR, Failure
from trainer.worker.messages import WorkerEnded

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray


@pytest.mark.parametrize(("state", "seconds"), [(Preempted(), 1.0), (Killed(), 20.0)])
def test_a_node_that_does_not_answer_is_asked_once_and_not_for_long_by_an_attempt_that_is_given_back(
    monkeypatch: pytest.MonkeyPatch, state: State, seconds: float
) -> None:
    waited: list[float] = []

    def silent(*_arguments: Any, seconds: float) -> None:
        waited.append(seconds)
        raise GetTimeoutError("no answer")

    monkeypatch.setattr(dead_workers, "run_on_node", silent)
    attempt: Any = SimpleNamespace(ranks=Ranks(2), state=SimpleNamespace(current=state, is_ending_now=True))
    for rank in (0, 1):
        attempt.ranks.add_started(rank, STARTED)
        assert dead_workers.remains_of(attempt, rank) == (dead_workers.NODE_SILENT, None, None)
    assert waited == [seconds]


class Verdict:
    """Ray finds a silent node dead after so many seconds. This stands in for the module `time`, too."""

    def __init__(self, patch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.comes_at = 1000.0, 1000.0 + seconds
        self.ends_at = self.now + 10_000
        self.state: Any = self
        self.current = Running()
        self.told_ending_at: list[float] = []
        patch.setattr(dead_workers, "time", self)
        patch.setattr(dead_workers, "run_on_node", self.run_on_node)
        patch.setattr(dead_workers, "is_node_alive", lambda _node: self.now < self.comes_at)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run_on_node(self, *_arguments: Any, seconds: float) -> None:
        self.now += seconds
        raise GetTimeoutError("no answer")

    @property
    def is_ending_now(self) -> bool:
        return self.now >= self.ends_at

    def tell_ending(self) -> None:
        self.told_ending_at.append(self.now)

    def waited(self, *failed: int) -> tuple[float, Ranks]:
        """How long an attempt waits whose rank 0 is silent, and `failed` have failed; and its ranks."""
        attempt: Any = SimpleNamespace(ranks=Ranks(2), state=self, delivery=self)
        began = self.now
        attempt.ranks.add_started(0, STARTED)
        for rank in failed:
            attempt.ranks.add_ended(rank, WorkerEnded(failure=Failure(USER_ERROR, "a collective timed out")))
        assert dead_workers.remains_of(attempt, 0) == (dead_workers.NODE_SILENT, None, None)
        return self.now - began, attempt.ranks


def test_rays_verdict_on_a_silent_node_is_awaited_before_another_ranks_error_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray takes a minute to notice that a node has vanished, and the other ranks may fail before."""
    verdict = Verdict(monkeypatch, 60.0)
    waited, ranks = verdict.waited(1)
    assert (waited, ranks.lost_nodes, ranks.late_nodes) == (60.0, {STARTED.node}, set())
    assert verdict.told_ending_at[0] == 1020.0  # before it waits, since the limit without reports may be short


def test_a_node_that_ray_takes_for_alive_is_only_late_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    waited, ranks = Verdict(monkeypatch, 10_000.0).waited(1)
    assert (waited, ranks.lost_nodes, ranks.late_nodes) == (70.0, set(), {STARTED.node})


def test_no_verdict_is_awaited_where_no_rank_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(monkeypatch, 60.0)
    waited, ranks = verdict.waited()
    assert (waited, ranks.late_nodes) == (20.0, {STARTED.node})
    assert verdict.told_ending_at == []


def test_the_wait_for_a_verdict_ends_with_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when its agent stops, and gives it back."""
    verdict = Verdict(monkeypatch, 60.0)
    verdict.ends_at = verdict.now + 25
    waited, ranks = verdict.waited(1)
    assert (waited, ranks.late_nodes) == (25.0, {STARTED.node})


def test_all_nodes_are_asked_at_the_same_time_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent kills the slot of an attempt that is given back after four seconds."""
    nodes = ["a", "b", "c", "d", "e", "f"]
    are_all_asked, asked = threading.Barrier(len(nodes), timeout=PATIENCE_SECONDS), list[str]()

    def silent(node: str, *_arguments: Any, seconds: float) -> None:
        asked.append(node)
        are_all_asked.wait()
        raise GetTimeoutError("no answer")

    monkeypatch.setattr(dead_workers, "run_on_node", silent)
    attempt: Any = SimpleNamespace(ranks=Ranks(12), state=SimpleNamespace(current=Preempted(), is_ending_now=True))
    for rank in range(12):
        attempt.ranks.add_started(rank, replace(STARTED, node=nodes[rank // 2]))
    sent: list[tuple[int, int, str]] = []
    attempt.ranks.take_remains(partial(dead_workers.remains_of, attempt), lambda *log: sent.append(log))
    assert sorted(asked) == nodes
    assert sent == [(rank, 0, dead_workers.NODE_SILENT) for rank in range(12)]


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (NodeDiedError("the node is gone"), True),
        (TaskUnschedulableError("the node is gone"), True),
        (WorkerCrashedError(), False),
        (RuntimeEnvSetupError("no room"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_task_that_fails_on_a_living_node_does_not_lose_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_lost: bool
) -> None:
    """Otherwise what the user's code has raised on a group of fixed size would count as the loss of a node."""

    def fail(*_arguments: Any, seconds: float) -> None:
        raise error

    monkeypatch.setattr(dead_workers, "run_on_node", fail)
    attempt: Any = SimpleNamespace(ranks=Ranks(1), state=SimpleNamespace(current=Running()))
    attempt.ranks.add_started(0, STARTED)
    assert dead_workers.remains_of(attempt, 0) == (dead_workers.NODE_SILENT, None, None)
    assert bool(attempt.ranks.lost_nodes) == is_lost
