"""Trials that the end of an experiment has stopped go on when the limit that ended it is moved."""

from typing import Any

import pytest

from tests.api.early_stopping.population import Trainer, a_population
from tests.api.experiments.confirmed_search import (
    asked,
    best,
    confirmations,
    ended,
    kinds,
    searched,
    shown,
    started,
    trials,
)
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

SHORT, LONG = {"max_seconds": 1e-3}, {"max_seconds": 1000}


def patched(service: Api, name: str, status: int = 200, **patch: Any) -> Any:
    response = service.http.patch(f"/v1/experiments/{name}", json=patch)
    assert response.status_code == status, response.text
    return response.json()


def statuses(service: Api, name: str) -> list[str]:
    return [one["status"] for one in trials(service, name)]


def out_of_time(service: Api, name: str, *held: Held) -> None:
    patched(service, name, limits=SHORT)
    for one in held:
        one.finish("stopped")
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", "max_seconds")


@pytest.mark.databases("sqlite", "postgresql")
def test_the_last_trial_goes_on_from_its_checkpoint_when_the_time_limit_is_raised(service: Api) -> None:
    name = service.create(limits={"max_trials": 2, "parallelism": 2})["name"]
    ended(asked(service, name), 0.5)
    last = asked(service, name)
    last.report(accuracy=0.6, checkpoint="/last-1")
    out_of_time(service, name, last)
    refused = service.http.post(f"/v1/trials/{last.trial}/retry").json()["detail"]
    assert "change the limit or target that ended it (limits.max_seconds)" in refused
    assert patched(service, name, limits=LONG)["status"] == "running"
    again = asked(service, name)
    assert (again.trial, again.assignment["resume"]) == (last.trial, {"uri": "/last-1", "step": 1})
    ended(again, 0.7)
    end = shown(service, name)
    assert (end["status"], end["end_reason"], end["best"]["value"]) == ("completed", "max_trials", 0.7)


def test_queued_trials_go_on_before_the_search_proposes_new_ones(service: Api) -> None:
    name = service.create(limits={"max_trials": 4, "parallelism": 1}, enqueue=[{"lr": 0.1}, {"lr": 0.2}])["name"]
    out_of_time(service, name, asked(service, name))
    assert statuses(service, name) == ["stopped", "stopped"]
    patched(service, name, limits=LONG)
    assert statuses(service, name) == ["queued", "queued"]
    assert "the experiment runs again after its end" in trials(service, name)[1]["reason"]


def test_trials_that_a_user_has_stopped_stay_stopped(service: Api) -> None:
    name = service.create(limits={"max_trials": 4, "parallelism": 4})["name"]
    one, other = asked(service, name), asked(service, name)
    service.post(f"/v1/trials/{one.trial}/stop")
    one.finish("stopped")
    out_of_time(service, name, other)
    patched(service, name, limits=LONG)
    assert statuses(service, name) == ["stopped", "queued"]


@pytest.mark.databases("sqlite", "postgresql")
def test_trials_that_still_leave_when_the_limit_is_moved_go_on_unless_a_user_has_stopped_them(service: Api) -> None:
    target = {"metric": "accuracy", "direction": "maximize", "target": 0.9}
    name = started(
        service, objectives=[target], confirm={"top": 1, "seeds": 2}, limits={"max_trials": 6, "parallelism": 3}
    )
    winner, leaving, stopped = (asked(service, name) for _ in range(3))
    winner.report(accuracy=0.95)
    winner.finish("stopped")
    assert leaving.heartbeat()["decision"] == "stop"
    service.post(f"/v1/trials/{stopped.trial}/stop")
    patched(service, name, objectives=[target | {"target": 0.99}])
    for held in (leaving, stopped):
        held.finish("stopped")
    assert statuses(service, name) == ["completed", "queued", "stopped"]
    assert trials(service, name)[1]["reason"] == "the experiment runs again after its end"


def test_a_users_stop_counts_also_after_the_experiment_has_begun_to_end(service: Api) -> None:
    name = service.create(limits={"max_trials": 4, "parallelism": 4})["name"]
    one, other = asked(service, name), asked(service, name)
    patched(service, name, limits=SHORT)
    service.post(f"/v1/trials/{one.trial}/stop")
    for held in (one, other):
        held.finish("stopped")
    patched(service, name, limits=LONG)
    assert statuses(service, name) == ["stopped", "queued"]


def test_a_lower_limit_of_trials_continues_nothing(service: Api) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 3})["name"]
    last = asked(service, name)
    out_of_time(service, name, last)
    patched(service, name, limits={**LONG, "max_trials": 2})
    ended(asked(service, name), 0.5)
    ended(asked(service, name), 0.6)
    assert shown(service, name)["end_reason"] == "max_trials"
    refused = patched(service, name, 409, limits={"max_trials": 1})
    assert "would end again immediately" in refused["detail"]


def test_the_members_of_a_population_go_on(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 3, "parallelism": 1}))["name"]
    trainer = Trainer()
    trainer.train_all(service, name, parallelism=1, most=2)
    out_of_time(service, name, asked(service, name))
    patched(service, name, limits=LONG)
    trainer.train_all(service, name, parallelism=1)
    assert statuses(service, name) == ["completed"] * 3


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("moved", [LONG, {**LONG, "max_trials": 7}])
def test_confirmations_that_the_time_limit_stopped_run_again(service: Api, moved: dict[str, Any]) -> None:
    name = started(service, confirm={"top": 1, "seeds": 2}, limits={"max_trials": 4, "parallelism": 4})
    searched(service, name, [0.5, 0.6])
    first = asked(service, name)
    first.report(accuracy=0.55)
    out_of_time(service, name, first)
    assert [one["status"] for one in confirmations(service, name)] == ["stopped"] * 2
    assert patched(service, name, limits=moved)["status"] == "running"
    while shown(service, name)["status"] == "running":
        ended(asked(service, name), 0.58)
    confirmation = best(service, name)["confirmation"]
    assert (confirmation["state"], [one["n"] for one in confirmation["ranking"]]) == ("complete", [2])
    assert shown(service, name)["end_reason"] == "max_trials"
    assert [one["count"] for one in kinds(service, name, "experiment.confirming")] == [2, 2]
    assert len(confirmations(service, name)) == 2


def test_a_time_limit_that_is_still_passed_lets_no_confirmations_run(service: Api) -> None:
    """Although the search has also reached its target, whose winners would be confirmed."""
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.6}]
    limits = {"max_trials": 4, "parallelism": 4}
    name = started(service, confirm={"top": 1, "seeds": 2}, limits=limits, objectives=objectives)
    searched(service, name, [0.7])
    first = asked(service, name)
    first.report(accuracy=0.55)
    out_of_time(service, name, first)
    problem = patched(service, name, 409, limits={"max_seconds": 2e-3})
    assert "would end again immediately: max_seconds" in problem["detail"]
    assert patched(service, name, limits=LONG)["status"] == "running"
    for _ in range(2):
        ended(asked(service, name), 0.58)
    assert shown(service, name)["end_reason"] == "target_reached"


def test_the_end_of_a_continued_search_lets_confirmations_run(service: Api) -> None:
    name = started(service, confirm={"top": 1, "seeds": 2}, limits={"max_trials": 4, "parallelism": 4})
    searched(service, name, [0.5, 0.6])
    first = asked(service, name)
    patched(service, name, limits={"max_trials": 7})
    while (held := asked(service, name)).shown()["confirms"] is not None:
        pass
    ended(held, 0.55)
    assert first.heartbeat()["decision"] == "continue"
