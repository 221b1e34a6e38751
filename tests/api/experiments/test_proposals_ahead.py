"""The next proposal is computed ahead, and is the same as one that is computed on demand."""

import threading
from typing import Any

import pytest

from search.samplers.gp import Gp
from search.study import StudyView
from service.app import application
from service.runtime.proposals import Proposals
from service.settings import Settings
from tests.conftest import Api, running
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

TPE = {"sampler": "tpe", "seed": 7, "options": {"n_startup_trials": 2}}


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> "Computed":
    watch = Computed(StudyView.propose)
    monkeypatch.setattr(StudyView, "propose", watch.propose())
    return watch


class Computed:
    """Records the trial numbers that proposals were computed for, and the threads."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._changed = threading.Condition()
        self.calls: list[tuple[int, str]] = []

    def propose(self) -> Any:
        def propose(view: StudyView, changes: Any, number: int) -> Any:
            params = self._original(view, changes, number)
            with self._changed:
                self.calls.append((number, threading.current_thread().name))
                self._changed.notify_all()
            return params

        return propose

    def wait_for(self, number: int, times: int = 1) -> None:
        def has_come() -> bool:
            return [one for one, _ in self.calls].count(number) >= times

        with self._changed:
            assert self._changed.wait_for(has_come, PATIENCE_SECONDS)


def experiment_id(service: Api, name: str) -> str:
    return str(service.get(f"/v1/experiments/{name}")["id"])


def until_nothing_is_scheduled(service: Api) -> None:
    service.app.state.context.proposals._ahead.submit(int).result()


def run_one(service: Api, name: str, accuracy: float) -> None:
    held = service.ask(name)
    assert held
    held.report(accuracy=accuracy)
    held.finish("completed")


def test_an_ask_gets_the_proposal_that_was_computed_after_the_last_trial(service: Api, computed: Computed) -> None:
    name = service.create(search=TPE, limits={"max_trials": 9, "parallelism": 1})["name"]
    for number in range(4):
        run_one(service, name, number)
        computed.wait_for(number + 1)
    sources = [trial["source"] for trial in service.get(f"/v1/experiments/{name}/trials")["items"]]
    assert sources == ["start_up", "start_up", "model", "model"]
    assert [number for number, _ in computed.calls] == [0, 1, 2, 3, 4]
    assert all("ahead" in thread for _, thread in computed.calls[1:])


def test_a_proposal_is_computed_again_when_the_history_changes(service: Api, computed: Computed) -> None:
    name = service.create(search=TPE, limits={"max_trials": 20, "parallelism": 2})["name"]
    first = service.ask(name)
    computed.wait_for(1)
    second = service.ask(name)
    assert first
    assert second
    first.report(accuracy=1)
    first.finish("completed")
    computed.wait_for(2)
    second.report(accuracy=0)
    second.finish("completed")
    computed.wait_for(2, times=2)


def test_an_outdated_proposal_is_not_used(service: Api, computed: Computed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change by another service process, before this one has computed a new proposal."""
    name = service.create(search=TPE, limits={"max_trials": 20, "parallelism": 1})["name"]
    held = service.ask(name)
    assert held
    computed.wait_for(0)
    context = service.app.state.context
    until_nothing_is_scheduled(service)
    context.proposals.prepare(experiment_id(service, name), lambda _: 1)
    computed.wait_for(1)
    monkeypatch.setattr(Proposals, "prepare", lambda *_: None)
    held.report(accuracy=1)
    held.finish()
    assert service.ask(name)
    assert [number for number, _ in computed.calls] == [0, 1, 1]


def test_no_proposal_is_computed_ahead_if_no_trial_could_start(service: Api, computed: Computed) -> None:
    name = service.create(search=TPE, limits={"max_trials": 2, "parallelism": 1})["name"]
    for number in range(2):
        run_one(service, name, number)
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    assert {number for number, _ in computed.calls} == {0, 1}


def test_proposals_are_those_of_an_undisturbed_search(service: Api) -> None:
    """One search waits for its proposals, the other asks for several immediately: both get the same ones."""
    limits = {"max_trials": 12, "parallelism": 3}
    names = [service.create(name=name, search=TPE, limits=limits)["name"] for name in ("one", "other")]
    seen: dict[str, list[Any]] = {name: [] for name in names}
    for name in names:
        for number in range(4):
            trio = [service.ask(name) for _ in range(3)]
            for held in trio:
                assert held
                seen[name].append(held.assignment["params"])
                held.report(accuracy=number + held.assignment["params"]["lr"])
                held.finish("completed")
            if name == "one":  # waits until every proposal is computed
                until_nothing_is_scheduled(service)
    assert seen["one"] == seen["other"]


def test_what_a_model_needs_is_imported_in_the_background_from_the_first_trial_on(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(Gp, "import_library", lambda _: threads.append(threading.current_thread().name))
    name = service.create(search={"sampler": "gp"}, limits={"max_trials": 20, "parallelism": 2})["name"]
    assert service.ask(name)
    until_nothing_is_scheduled(service)
    assert threads
    assert all("ahead" in thread for thread in threads)


@pytest.mark.parametrize("parallelism", [1, 2], ids=["no trial may start", "a trial may start"])
def test_a_service_that_starts_again_prepares_the_next_proposal(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    prepared = threading.Event()
    monkeypatch.setattr(Gp, "import_library", lambda _: prepared.set())
    with running(settings) as service:
        name = service.create(search={"sampler": "gp"}, limits={"max_trials": 9, "parallelism": parallelism})["name"]
        assert service.ask(name)
        until_nothing_is_scheduled(service)
    prepared.clear()
    monkeypatch.setattr(application, "HEAVY_IMPORTS_AFTER", 0)
    with running(settings) as service:
        assert prepared.wait(PATIENCE_SECONDS)
        newest = service.app.state.context.proposals.newest(experiment_id(service, name))
    assert (newest is not None) == (parallelism > 1)
