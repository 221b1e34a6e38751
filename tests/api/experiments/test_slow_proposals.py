"""A proposal that takes long: calls of other experiments are answered meanwhile."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy.orm import Session

from search.study import StudyView
from service.operations.locked_experiment import LockedExperiment, try_to_lock
from service.runtime import proposals
from service.runtime.computation.threads import ASSIGNING
from service.runtime.proposals import Proposals
from tests.conftest import Api, Held
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}


class Turns:
    """Counts the calls that have begun to wait for their turn. The sampler answers when it is `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.proposing = threading.Event()
        self._count = 0
        self._changed = threading.Condition()

    def note(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, PATIENCE_SECONDS)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    found, turn, propose = Turns(), Proposals.turn, StudyView.propose

    @contextmanager
    def noted(own: Proposals, experiment_id: str) -> Iterator[bool]:
        found.note()
        with turn(own, experiment_id) as has_waited:
            yield has_waited

    def blocked(view: StudyView, *arguments: Any) -> Any:
        found.proposing.set()
        found.released.wait(PATIENCE_SECONDS)
        return propose(view, *arguments)

    monkeypatch.setattr(Proposals, "turn", noted)
    monkeypatch.setattr(StudyView, "propose", blocked)
    monkeypatch.setattr(Proposals, "prepare", lambda *_: None)
    return found


@contextmanager
def made(calls: list[Callable[[], Any]], turns: Turns) -> Iterator[list[Future[Any]]]:
    """Calls that want a proposal, all of which have begun. All but one must be answered without it."""
    with ThreadPoolExecutor(len(calls)) as threads:
        begun = [threads.submit(call) for call in calls]
        try:
            turns.wait_for(len(calls))
            yield begun
            wait_until(lambda: sum(one.done() for one in begun) == len(calls) - 1)
        finally:
            turns.released.set()


def held_of(service: Api, name: str, count: int) -> list[Held]:
    """Trials that needed no proposal."""
    service.post(f"/v1/experiments/{name}/trials", 201, json=[{"params": {"lr": 0.1}}] * count)
    held = [service.ask(name) for _ in range(count)]
    return [one for one in held if one]


def claimed(service: Api, agent: str, cpus: float = 1.0) -> str | None:
    """The experiment whose trial the agent gets."""
    node = {"total": {"CPU": cpus}, "free": {"CPU": cpus}}
    answer = service.http.post(f"/v1/agents/{agent}/claim", json={"request_id": agent, "nodes": [node]})
    return answer.json()["experiment"] if answer.content else None


def slow_experiment(service: Api, **changes: Any) -> str:
    return str(service.create(limits={"max_trials": 40, "parallelism": 20}, **changes)["name"])


def test_an_ask_has_a_trial_later_if_another_one_makes_the_proposal(service: Api, turns: Turns) -> None:
    [other] = held_of(service, service.create()["name"], 1)
    slow = slow_experiment(service)
    with made([lambda: service.ask(slow)] * ASSIGNING, turns) as asked:
        other.finish("stopped")
    assert [one.result() is None for one in asked].count(False) == 1


def test_a_finish_gets_no_next_trial_if_another_one_makes_the_proposal(service: Api, turns: Turns) -> None:
    [other] = held_of(service, service.create()["name"], 1)
    slow = held_of(service, slow_experiment(service), ASSIGNING)
    with made([partial(one.finish, "stopped", next=True) for one in slow], turns) as finished:
        other.finish("stopped")
    assert [one.result()["next"] is None for one in finished].count(False) == 1


def test_a_claim_gets_a_trial_of_the_next_experiment_if_another_one_makes_the_proposal(
    service: Api, turns: Turns
) -> None:
    slow = slow_experiment(service, trainer=TORCH)
    with made([partial(claimed, service, f"agent-{number}") for number in range(ASSIGNING)], turns) as claims:
        other = service.create(trainer=TORCH)["name"]
        service.post(f"/v1/experiments/{other}/trials", 201, json={"params": {"lr": 0.1}})
        assert claimed(service, "another") == other
    assert [name for one in claims if (name := one.result())] == [slow]


def test_a_claim_does_not_lock_an_experiment_whose_proposal_another_one_makes(
    service: Api, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = list[str]()

    def noted(session: Session, experiment_id: str) -> LockedExperiment | None:
        locked.append(experiment_id)
        return try_to_lock(session, experiment_id)

    monkeypatch.setattr(proposals, "PATIENCE_SECONDS", 0.0)
    slow = slow_experiment(service, trainer=TORCH)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(claimed, service, "first")
        turns.proposing.wait(PATIENCE_SECONDS)
        monkeypatch.setattr("service.operations.attempts.scheduling.next_trial.try_to_lock", noted)
        assert claimed(service, "waiting") is None
        assert not locked
        service.post(f"/v1/experiments/{slow}/trials", 201, json={"params": {"lr": 0.1}})
        assert claimed(service, "waiting-2") == slow, "a queued trial needs no proposal"
        turns.released.set()
        assert first.result() == slow


def test_resources_are_kept_for_a_slow_proposal_of_a_higher_priority(
    service: Api, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_experiment(service, trainer=TORCH, priority=1)
    other = service.create(trainer=TORCH)["name"]
    service.post(f"/v1/experiments/{other}/trials", 201, json=[{"params": {"lr": 0.1}}] * 2)
    with made([partial(claimed, service, f"agent-{number}") for number in range(2)], turns) as claims:
        wait_until(lambda: sum(one.done() for one in claims) == 1)
        assert claimed(service, "another") is None
        assert claimed(service, "a larger one", cpus=2) == other
        monkeypatch.setattr("service.operations.attempts.scheduling.claim.MAX_PENDING_SECONDS", 0.0)
        assert claimed(service, "one more") == other
    assert {one.result() for one in claims} == {slow, None}
