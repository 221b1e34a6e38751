"""Configurations that a user enqueues in a live experiment, over HTTP."""

from typing import Any

import pytest
import yaml

from service.operations.trials import enqueue
from tests.concurrent_calls import at_once
from tests.conftest import Api

pytestmark = pytest.mark.slow

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
}


def path_of(name: str) -> str:
    return f"/v1/experiments/{name}/trials"


def given(lr: float) -> dict[str, Any]:
    return {"params": {"lr": lr}}


def test_an_enqueued_configuration_runs_next(service: Api) -> None:
    name = service.create()["name"]
    assert service.ask(name)
    trial = service.post(path_of(name), 201, json=given(0.125))
    assert (trial["number"], trial["status"], trial["origin"], trial["source"]) == (1, "queued", "enqueue", "user")
    held = service.ask(name)
    assert held
    assert held.trial == trial["id"]
    assert held.assignment["params"] == {"lr": 0.125}
    proposed = service.ask(name)
    assert proposed
    assert proposed.shown()["origin"] == "search"


def test_a_list_runs_in_its_order(service: Api) -> None:
    name = service.create()["name"]
    trials = service.post(path_of(name), 201, json=[given(0.5), given(0.25)])["items"]
    assert [trial["params"]["lr"] for trial in trials] == [0.5, 0.25]
    assert [held.trial for held in (service.ask(name), service.ask(name)) if held] == [one["id"] for one in trials]


def test_yaml_is_accepted(service: Api) -> None:
    name = service.create()["name"]
    headers = {"Content-Type": "application/yaml"}
    trial = service.post(path_of(name), 201, content=yaml.safe_dump(given(0.5)).encode(), headers=headers)
    assert trial["params"] == {"lr": 0.5}


@pytest.mark.parametrize("search", [{"sampler": "grid"}, {"sampler": "gp", "options": {"n_startup_trials": 1}}])
def test_the_ends_of_a_float_with_a_step_are_known_despite_rounding(service: Api, search: dict[str, Any]) -> None:
    """0.1 + 0.2 is more than 0.3, and 0.3 - 0.2 is less than 0.1."""
    space = {"x": {"type": "float", "low": 0.1, "high": 0.3, "step": 0.1}}
    name = service.create(space=space, search=search, limits={"max_trials": 4})["name"]
    service.post(path_of(name), 201, json=[{"params": {"x": value}} for value in (0.1 + 0.2, 0.3 - 0.2)])
    for value in (0.1 + 0.2, 0.3 - 0.2, 0.2):
        held = service.ask(name)
        assert held
        assert held.assignment["params"] == {"x": value}
        held.report(loss=value)
        held.finish()
    service.post(path_of(name), 422, json={"params": {"x": 0.3001}})


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"params": {"lr": 7, "optimizer": "adamw", "momentum": 0.5}}, {"params.lr", "params.momentum"}),
        (
            [{"params": {"lr": 0.5, "optimizer": "adamw"}}, {"params": {"rl": 1}}],
            {"1.params.rl", "1.params.lr", "1.params.optimizer"},
        ),
        ({"lr": 0.5}, {"lr", "params"}),
        ([{"params": 1}, {"parms": {}}], {"0.params", "1.params", "1.parms"}),
        ([], {""}),
        ("lr", {""}),
        ({"params": {"lr": "\0"}}, {"params.lr"}),
    ],
)
def test_each_mistake_is_reported_with_its_path_and_nothing_is_created(
    service: Api, body: Any, paths: set[str]
) -> None:
    name = service.create(space=SPACE)["name"]
    problem = service.post(path_of(name), 422, json=body)
    assert {error["path"] for error in problem["errors"]} == paths
    assert service.get(path_of(name))["items"] == []


def test_enqueued_trials_count_in_max_trials(service: Api) -> None:
    name = service.create(limits={"max_trials": 3})["name"]
    service.post(path_of(name), 201, json=[given(0.5), given(0.25)])
    problem = service.post(path_of(name), 409, json=[given(0.5), given(0.25)])
    assert (problem["trial_count"], problem["max_trials"]) == (2, 3)
    assert "PATCH" in problem["detail"]
    service.post(path_of(name), 201, json=given(0.75))


def test_the_same_key_gives_the_same_trials(service: Api) -> None:
    name = service.create()["name"]
    body, headers = [given(0.5), given(0.25)], {"Idempotency-Key": "once"}
    first = service.post(path_of(name), 201, json=body, headers=headers)
    assert service.post(path_of(name), 201, json=body, headers=headers) == first
    problem = service.post(path_of(name), 409, json=given(0.5), headers=headers)
    assert "Idempotency-Key" in problem["detail"]
    assert len(service.get(path_of(name))["items"]) == 2
    other = service.create()["name"]
    assert service.post(path_of(other), 201, json=body, headers=headers) != first


def test_concurrent_calls_with_one_key_create_one_trial(service: Api) -> None:
    name = service.create()["name"]
    headers = {"Idempotency-Key": "k"}
    ids = at_once(6, lambda: service.post(path_of(name), 201, json=given(0.5), headers=headers)["id"])
    assert len(ids) == 6
    assert len(set(ids)) == 1


def test_a_paused_experiment_keeps_enqueued_trials_queued(service: Api) -> None:
    name = service.create()["name"]
    service.post(f"/v1/experiments/{name}/pause")
    trial = service.post(path_of(name), 201, json=given(0.5))
    assert service.ask(name) is None
    service.post(f"/v1/experiments/{name}/resume")
    held = service.ask(name)
    assert held
    assert held.trial == trial["id"]


def test_an_ended_or_ending_experiment_takes_no_trials(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    service.post(f"/v1/experiments/{name}/stop")
    assert "ending (user)" in service.post(path_of(name), 409, json=given(0.5))["detail"]
    held.finish("stopped")
    assert "stopped (user)" in service.post(path_of(name), 409, json=given(0.5))["detail"]
    service.post(path_of("nothing"), 404, json=given(0.5))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("PATCH", "", {"space": {"lr": {"low": 0.25}}}), 422),
        (("PATCH", "", {"limits": {"max_trials": 1}}), 409),
        (("POST", "/stop", None), 409),
        (("PATCH", "", {"tags": {"seen": "yes"}}), 201),
    ],
)
def test_what_changes_while_configurations_are_checked_counts(
    service: Api, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str, Any], status: int
) -> None:
    """They are checked outside of the transaction, so that other calls go on meanwhile."""
    name, changes = service.create()["name"], [change]
    check = enqueue._mistakes_in

    def check_slowly(configurations: Any, spec: Any) -> Any:
        found = check(configurations, spec)
        while changes:
            method, path, body = changes.pop()
            service.http.request(method, f"/v1/experiments/{name}{path}", json=body).raise_for_status()
        return found

    monkeypatch.setattr(enqueue, "_mistakes_in", check_slowly)
    service.post(path_of(name), status, json=[given(0.125), given(0.5)])
    assert len(service.get(path_of(name))["items"]) == (2 if status == 201 else 0)
    assert not changes


def test_an_exhausted_space_still_takes_enqueued_trials_while_its_last_trials_run(service: Api) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 1}}
    name = service.create(space=space, search={"sampler": "grid"})["name"]
    held = [service.ask(name), service.ask(name)]
    assert service.ask(name) is None
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "space_exhausted"
    trial = service.post(path_of(name), 201, json={"params": {"n": 1}})
    again = service.ask(name)
    assert again
    assert again.trial == trial["id"]
    for one in [*held, again]:
        assert one
        one.report(accuracy=0.5)
        one.finish()
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
