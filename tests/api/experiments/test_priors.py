"""Priors over HTTP: what is refused, and which trials come from them."""

from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.slow

RATE = {"type": "float", "low": 1e-4, "high": 1.0, "log": True}
CHOICES = {"type": "categorical", "choices": ["sgd", "adamw"]}
SPACE = {
    "lr": {**RATE, "prior": {"value": 1e-3, "confidence": "high"}},
    "optimizer": {**CHOICES, "prior": {"value": "adamw"}},
}


def trials_of(service: Api, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = service.get(f"/v1/experiments/{name}/trials")["items"]
    return sorted(items, key=lambda trial: int(trial["number"]))


def run_one(service: Api, name: str, number: int) -> None:
    held = service.ask(name)
    assert held
    held.report(accuracy=number)
    held.finish("completed")


def test_trials_say_that_they_come_from_the_priors_or_from_around_the_best_one(service: Api) -> None:
    name = service.create(space=SPACE, limits={"max_trials": 12, "parallelism": 1})["name"]
    for number in range(12):
        run_one(service, name, number)
    trials = trials_of(service, name)
    assert (trials[0]["source"], trials[0]["params"]) == ("prior", {"lr": 1e-3, "optimizer": "adamw"})
    assert {trial["source"] for trial in trials} == {"prior", "incumbent", "random"}
    assert {trial["origin"] for trial in trials} == {"search"}


def test_an_enqueued_trial_with_the_values_of_the_priors_stands_for_the_first_proposal(service: Api) -> None:
    mode = {"lr": 1e-3, "optimizer": "adamw"}
    name = service.create(space=SPACE, enqueue=[mode], limits={"max_trials": 3, "parallelism": 3})["name"]
    assert all(service.ask(name) for _ in range(3))
    first, *others = trials_of(service, name)
    assert (first["source"], first["params"]) == ("user", mode)
    assert all(trial["params"] != mode for trial in others)


def test_a_wrong_prior_is_refused_with_its_path(service: Api) -> None:
    wrong = {
        "space": {
            "lr": {**RATE, "prior": {"value": 2}},
            "optimizer": {**CHOICES, "prior": {"value": "adam", "confidence": "sure"}},
        },
        "name": "wrong",
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
    }
    problem = service.post("/v1/experiments", 422, json=wrong)
    assert {one["path"] for one in problem["errors"]} == {"space.lr.prior.value", "space.optimizer.prior.confidence"}


def test_priors_without_effect_are_warned_of(service: Api) -> None:
    created = service.create(space=SPACE, search={"sampler": "qmc"})
    assert [one["path"] for one in created["warnings"]] == ["space.lr.prior", "space.optimizer.prior"]


def test_priors_whose_values_are_forbidden_together_are_warned_of(service: Api) -> None:
    forbid = [{"optimizer": "sgd", "lr": {"min": 0.1}}, {"optimizer": "adamw", "lr": {"max": 0.01}}]
    created = service.create(space=SPACE, forbid=forbid)
    assert created["warnings"] == [
        {
            "path": "forbid.1",
            "message": "forbids the configuration that the priors name, so it is never proposed",
        }
    ]


def test_a_prior_can_be_changed_while_the_experiment_runs(service: Api) -> None:
    name = service.create(space=SPACE)["name"]
    assert service.ask(name)
    change = {"space": {"lr": {"prior": {"value": 0.5}}}}
    service.http.patch(f"/v1/experiments/{name}", json=change).raise_for_status()
    assert service.ask(name)
    assert trials_of(service, name)[1]["params"] == {"lr": 0.5, "optimizer": "adamw"}
    narrower = service.http.patch(f"/v1/experiments/{name}", json={"space": {"lr": {"high": 0.1}}})
    assert narrower.status_code == 422
    assert [one["path"] for one in narrower.json()["errors"]] == ["space.lr.prior.value"]
