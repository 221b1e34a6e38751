"""An experiment that a user has stopped or cancelled goes on when the user resumes it."""

from typing import Any

import pytest

from tests.api.experiments.confirmed_search import asked, confirmations, ended, searched, shown, started, trials
from tests.conftest import Api

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def posted(service: Api, name: str, what: str, status: int = 200) -> Any:
    return service.post(f"/v1/experiments/{name}/{what}", status)


def patched(service: Api, name: str, status: int = 200, **patch: Any) -> Any:
    response = service.http.patch(f"/v1/experiments/{name}", json=patch)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("what", ["stop", "cancel"])
def test_its_trials_go_on_from_their_checkpoints(service: Api, what: str) -> None:
    name = service.create(limits={"max_trials": 3, "parallelism": 2}, enqueue=[{"lr": 0.1}] * 3)["name"]
    first, second = asked(service, name), asked(service, name)
    first.report(accuracy=0.6, checkpoint="/first-1")
    posted(service, name, what)
    refused = posted(service, name, "resume", 409)["detail"]
    assert "is ending (user)" in refused
    for one in (first, second):
        one.finish("stopped")
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("stopped", "user")

    resumed = posted(service, name, "resume")
    assert (resumed["status"], resumed["end_reason"], resumed["ended_at"]) == ("running", None, None)
    assert posted(service, name, "resume")["status"] == "running"
    assert [one["status"] for one in trials(service, name)] == ["queued"] * 3
    queued_again = [one["data"]["reason"] for one in service.events(name) if one["kind"] == "trial.queued"][-2:]
    assert queued_again == ["the experiment runs again after its end"] * 2
    again = asked(service, name)
    assert (again.trial, again.assignment["resume"]) == (first.trial, {"uri": "/first-1", "step": 1})
    ended(again, 0.7)
    for _ in range(2):
        ended(asked(service, name), 0.7)
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", "max_trials")
    [event] = [one["data"] for one in service.events(name) if one["kind"] == "experiment.running"]
    assert event["ended_by"] == "user"


def test_a_trial_that_leaves_after_the_stop_was_taken_back_goes_on(service: Api) -> None:
    name = service.create(limits={"max_trials": 2, "parallelism": 2})["name"]
    alone, left = asked(service, name), asked(service, name)
    service.post(f"/v1/trials/{alone.trial}/stop", 200)
    alone.finish("stopped")
    posted(service, name, "stop")
    left.finish("stopped")
    posted(service, name, "resume")
    assert [one["status"] for one in trials(service, name)] == ["stopped", "queued"], (
        "a user stopped the first by itself"
    )


def test_limits_that_have_been_reached_can_be_moved_before(service: Api) -> None:
    name = service.create(limits={"max_trials": 4, "max_seconds": 1000})["name"]
    ended(asked(service, name), 0.5)
    posted(service, name, "stop")
    assert patched(service, name, limits={"max_seconds": 1e-3})["status"] == "stopped"
    refused = posted(service, name, "resume", 409)["detail"]
    assert "would end again immediately: max_seconds" in refused
    assert f"change limits.max_seconds, then resume it: POST /v1/experiments/{name}/resume" in refused
    assert patched(service, name, limits={"max_seconds": 1000})["status"] == "stopped"
    assert posted(service, name, "resume")["status"] == "running"
    ended(asked(service, name), 0.6)


def test_other_fields_and_calls_say_how_it_can_continue(service: Api) -> None:
    name = service.create()["name"]
    ended(asked(service, name), 0.5)
    posted(service, name, "stop")
    advice = f"resume it: POST /v1/experiments/{name}/resume"
    assert advice in patched(service, name, 409, space={"lr": {"high": 0.5}})["detail"]
    assert advice in service.post(f"/v1/experiments/{name}/trials", 409, json={"params": {"lr": 0.1}})["detail"]
    assert advice in posted(service, name, "pause", 409)["detail"]
    assert patched(service, name, tags={"of": "mine"})["status"] == "stopped"


def test_an_end_of_another_kind_is_not_taken_back(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    ended(asked(service, name), 0.5)
    assert (
        "change the limit or target that ended it (limits.max_trials)" in posted(service, name, "resume", 409)["detail"]
    )


def test_confirmations_that_a_stop_ended_go_on(service: Api) -> None:
    name = started(service)
    searched(service, name)
    held = asked(service, name)
    posted(service, name, "stop")
    held.finish("stopped")
    assert shown(service, name)["status"] == "stopped"
    assert posted(service, name, "resume")["status"] == "running"
    while any(one["status"] == "queued" for one in confirmations(service, name)):
        ended(asked(service, name), 0.8)
    assert {one["status"] for one in confirmations(service, name)} == {"completed"}
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", "max_trials")


def test_trials_that_the_stop_ended_are_no_sign_that_the_search_no_longer_improves(service: Api) -> None:
    limits = {"max_trials": 20, "parallelism": 4, "no_improvement": {"trials": 3}}
    name = service.create(limits=limits)["name"]
    for value in (0.5, 0.9):
        ended(asked(service, name), value)
    running = [asked(service, name) for _ in range(4)]
    for one in running:
        one.report(accuracy=0.1)
    posted(service, name, "stop")
    for one in running:
        one.finish("stopped")
    assert posted(service, name, "resume")["status"] == "running"
    assert sum(one["status"] == "queued" for one in trials(service, name)) == 4
