"""Warm starts: a search that learns from the trials of earlier experiments, over HTTP."""

from typing import Any

import pytest

from service.settings import Settings
from tests.conftest import Api, a_spec, running

pytestmark = pytest.mark.slow

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
}
LIMITS = {"max_trials": 20, "parallelism": 20}
TPE = {"sampler": "tpe", "seed": 5, "options": {"n_startup_trials": 2}}


def an_earlier_one(service: Api, *values: float, **changes: Any) -> str:
    """An experiment with a completed trial for each value of `hidden`; a larger value has a better result."""
    spec = {"space": SPACE, "limits": {"max_trials": 50, "parallelism": 50}} | changes
    name: str = service.create(**spec)["name"]
    for value in values:
        service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.1, "hidden": value}})
        held = service.ask(name)
        assert held
        held.report(accuracy=value / 256)
        held.finish()
    return name


def first_proposal(service: Api, name: str) -> Any:
    held = service.ask(name)
    assert held
    return held.assignment["params"]


def sixteenth_trial(service: Api, name: str) -> Any:
    """The first one that comes from an earlier experiment while no trial has ended."""
    held = [service.ask(name) for _ in range(16)][-1]
    assert held
    return held.shown()


def paths_of(service: Api, **changes: Any) -> dict[str, str]:
    problem = service.post("/v1/experiments", 422, json=a_spec(**changes))
    return {error["path"]: error["message"] for error in problem["errors"]}


def test_a_search_learns_from_an_earlier_experiment_and_shows_how_many_trials(service: Api) -> None:
    earlier = an_earlier_one(service, 16, 32, 128, 240, 256)
    failed = service.ask(earlier)
    assert failed
    failed.fail()
    assert service.ask(earlier)
    cold = service.create(space=SPACE, search=TPE, limits=LIMITS)["name"]
    warm = service.create(space=SPACE, search=TPE | {"warm_start": [earlier]}, limits=LIMITS)
    [taken] = warm["warm_start"]
    assert (taken["experiment"], taken["taken"]) == (earlier, 5)
    assert taken["left_out"] == {"failed": 1, "not finished": 1}
    assert taken["id"] == service.get(f"/v1/experiments/{earlier}")["id"]
    stored = [one["data"] for one in service.events(warm["name"]) if one["kind"] == "experiment.warm_started"]
    assert stored == [{"sources": [taken]}]
    assert service.get(f"/v1/experiments/{cold}")["warm_start"] is None
    trials = [sixteenth_trial(service, name) for name in (warm["name"], cold)]
    assert trials[0]["params"] != trials[1]["params"]
    assert [trial["source"] for trial in trials] == ["warm_start", "start_up"]
    assert trials[0]["warm_start"] == {"weights": {earlier: 0.4}, "experiment": earlier}
    assert trials[1]["warm_start"] is None


def test_moved_bounds_and_new_or_missing_parameters_are_reported(service: Api) -> None:
    earlier = an_earlier_one(service, 16, 128, 256)
    space = {
        "hidden": {"type": "int", "low": 64, "high": 512, "step": 16},
        "layers": {"type": "int", "low": 1, "high": 4},
    }
    [taken] = service.create(space=space, search=TPE | {"warm_start": [earlier]})["warm_start"]
    assert taken == taken | {
        "taken": 2,
        "left_out": {"hidden is outside of the space": 1},
        "unknown": ["layers"],
        "dropped": ["lr"],
    }


def test_the_observations_stay_when_the_earlier_experiment_changes_or_is_deleted(settings: Settings) -> None:
    with running(settings) as service:
        earlier = an_earlier_one(service, 16, 32, 240, 256)
        search = TPE | {"warm_start": [earlier]}
        names = [service.create(space=SPACE, search=search, limits=LIMITS)["name"] for _ in range(2)]
        before = sixteenth_trial(service, names[0])
        service.post(f"/v1/experiments/{earlier}/trials", 201, json={"params": {"lr": 0.5, "hidden": 16}})
        held = service.ask(earlier)
        assert held
        held.report(accuracy=5)
        held.finish()
        service.post(f"/v1/experiments/{earlier}/stop")
        service.http.delete(f"/v1/experiments/{earlier}").raise_for_status()
    with running(settings) as service:
        again = sixteenth_trial(service, names[1])
        assert (again["params"], again["warm_start"]) == (before["params"], before["warm_start"])
        assert service.get(f"/v1/experiments/{names[1]}")["warm_start"][0]["taken"] == 4


def test_experiments_that_cannot_inform_a_search_are_mistakes(service: Api) -> None:
    earlier = an_earlier_one(service, 16)
    id_ = service.get(f"/v1/experiments/{earlier}")["id"]
    other = service.create(objectives=[{"metric": "loss", "direction": "minimize"}])["name"]
    mistakes = paths_of(service, search={"warm_start": [earlier, "nothing", id_, other]})
    assert set(mistakes) == {f"search.warm_start.{index}" for index in (1, 2, 3)}
    assert "no experiment 'nothing'" in mistakes["search.warm_start.1"]
    assert "appears twice" in mistakes["search.warm_start.2"]
    assert "accuracy is no objective or constraint of" in mistakes["search.warm_start.3"]
    assert set(paths_of(service, search={"warm_start": earlier})) == {"search.warm_start"}


def test_an_objective_may_have_been_a_constraint_before(service: Api) -> None:
    earlier = service.create(constraints=[{"metric": "latency", "max": 20}])["name"]
    for latency in (10, 30):
        held = service.ask(earlier)
        assert held
        held.report(accuracy=0.5, latency=latency)
        held.finish()
    objectives = [{"metric": "latency", "direction": "minimize"}]
    [taken] = service.create(objectives=objectives, search=TPE | {"warm_start": [earlier]})["warm_start"]
    assert (taken["taken"], taken["left_out"]) == (2, {})


def test_trials_without_a_constraints_metric_are_left_out(service: Api) -> None:
    earlier = an_earlier_one(service, 16, 32)
    constraints = [{"metric": "latency", "max": 20}]
    search = TPE | {"warm_start": [earlier]}
    [taken] = service.create(space=SPACE, constraints=constraints, search=search)["warm_start"]
    assert (taken["taken"], taken["left_out"]) == (0, {"a constraint's metric is not known": 2})


def test_a_grid_leaves_out_what_was_tried_before(service: Api) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 3}}
    earlier = service.create(space=space, search={"sampler": "grid"})["name"]
    tried = []
    for _ in range(2):
        held = service.ask(earlier)
        assert held
        tried.append(held.assignment["params"]["n"])
        held.report(accuracy=0.5)
        held.finish()
    rest = service.create(space=space, search={"sampler": "grid", "warm_start": [earlier]})["name"]
    tried += [first_proposal(service, rest)["n"], first_proposal(service, rest)["n"]]
    assert sorted(tried) == [0, 1, 2, 3]
    assert service.ask(rest) is None


def test_observations_outside_a_narrowed_space_are_left_out(service: Api) -> None:
    earlier = an_earlier_one(service, 16, 32, 240, 256)
    name = service.create(space=SPACE, search=TPE | {"warm_start": [earlier]})["name"]
    patch = {"space": {"hidden": {"low": 128}}}
    service.http.patch(f"/v1/experiments/{name}", json=patch).raise_for_status()
    for _ in range(3):
        assert first_proposal(service, name)["hidden"] >= 128
