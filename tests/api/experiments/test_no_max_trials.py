"""`max_trials: null`: something else than a number of trials ends the experiment."""

from typing import Any

import pytest

from tests.api.experiments.changed_experiments import asked, changes, patched, ran
from tests.api.experiments.confirmed_search import confirmations, confirmed, searched
from tests.conftest import Api, a_spec

pytestmark = pytest.mark.slow

TIMED = {"max_trials": None, "max_seconds": 3600, "parallelism": 20}
MAXIMIZE = {"metric": "accuracy", "direction": "maximize"}
ON_GPU = {"kind": "external", "scaling": {"use_gpu": True}}
FINITE = {"n": {"type": "int", "low": 0, "high": 2}}
LARGE = {"n": {"type": "int", "low": 1, "high": 12}}


def unlimited(service: Api, **more: Any) -> str:
    return str(service.create(**{"limits": TIMED} | more)["name"])


def refused(service: Api, **more: Any) -> dict[str, str]:
    problem = service.post("/v1/experiments", 422, json=a_spec(**more))
    return {one["path"]: one["message"] for one in problem["errors"]}


def test_a_time_limit_ends_it(service: Api) -> None:
    name = unlimited(service)
    shown = service.get(f"/v1/experiments/{name}")
    assert shown["spec"]["limits"]["max_trials"] is None
    assert service.get("/v1/experiments")["items"][0]["spec"]["limits"]["max_trials"] is None
    for value in range(12):
        ran(service, name, value / 12)
    held = asked(service, name)
    patched(service, name, limits={"max_seconds": 1e-6})
    assert held.heartbeat()["decision"] == "stop"
    held.finish("stopped")
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("completed", "max_seconds")


def test_an_absent_number_is_100_as_before(service: Api) -> None:
    assert service.create(limits={"max_seconds": 60})["spec"]["limits"]["max_trials"] == 100


def test_without_another_end_it_is_refused_with_what_to_add(service: Api) -> None:
    message = refused(service, limits={"max_trials": None})["limits.max_trials"]
    for part in ("max_seconds", "max_gpu_hours", "no_improvement", "target", "grid", "brute_force"):
        assert part in message


@pytest.mark.parametrize(
    "spec",
    [
        {"limits": {"max_trials": None, "no_improvement": {"trials": 3}}},
        {"limits": {"max_trials": None, "max_gpu_hours": 1}, "trainer": ON_GPU},
        {"limits": {"max_trials": None}, "objectives": [MAXIMIZE | {"target": 0.9}]},
        {"limits": {"max_trials": None}, "space": FINITE, "search": {"sampler": "grid"}},
        {"limits": {"max_trials": None}, "space": FINITE, "search": {"sampler": "brute_force"}},
        {"limits": {"max_trials": None}, "space": FINITE, "search": "auto"},
        {"limits": {"max_trials": None}, "space": LARGE, "search": "auto"},
    ],
)
def test_each_end_by_itself_allows_it(service: Api, spec: dict[str, Any]) -> None:
    assert service.create(**spec)["spec"]["limits"]["max_trials"] is None


def test_a_finite_space_that_the_sampler_does_not_exhaust_is_no_end(service: Api) -> None:
    assert "limits.max_trials" in refused(service, limits={"max_trials": None}, space=FINITE, search={"sampler": "tpe"})


def test_a_space_that_is_too_large_to_be_exhausted_before_another_end_is_no_end(service: Api) -> None:
    """Its configurations are too many for a float to say how many they are."""
    space = {f"n{n}": {"type": "int", "low": 0, "high": 99} for n in range(160)}
    auto = {"space": space, "search": {"sampler": "auto"}}
    assert service.create(**auto, limits=TIMED)["warnings"] == []
    assert "confirms nothing" in refused(service, **auto, limits=TIMED, confirm={}, config={"seed": 1})["confirm"]
    [warning] = service.create(**auto, limits={"max_trials": None}, objectives=[MAXIMIZE | {"target": 0.9}])["warnings"]
    assert "until a trial reaches the target" in warning["message"]


def test_an_exhausted_space_ends_it(service: Api) -> None:
    name = unlimited(service, limits={"max_trials": None}, space=FINITE, search={"sampler": "grid"})
    for value in (0.1, 0.2, 0.3):
        ran(service, name, value)
    assert service.ask(name) is None
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("completed", "space_exhausted")


def test_a_space_that_a_model_has_exhausted_ends_it(service: Api) -> None:
    limits = {"max_trials": None, "parallelism": 2}
    created = service.create(limits=limits, space=LARGE, search={"sampler": "auto", "seed": 7})
    held, tried = asked(service, created["name"]), list[int]()
    for _ in range(11):  # two trials at a time, of which the older one ends
        following = asked(service, created["name"])
        tried.append(held.assignment["params"]["n"])
        held.report(accuracy=1 / tried[-1])
        held.finish()
        held = following
    assert service.ask(created["name"]) is None, "nothing is left to propose"
    assert service.get(f"/v1/experiments/{created['name']}")["end_reason"] == "space_exhausted"
    held.report(accuracy=0.5)
    held.finish()
    assert service.get(f"/v1/experiments/{created['name']}")["status"] == "completed"
    assert sorted([*tried, held.assignment["params"]["n"]]) == list(range(1, 13))


def test_a_target_that_nothing_else_waits_for_is_a_warning(service: Api) -> None:
    objectives = [MAXIMIZE | {"target": 0.9}]
    [warning] = service.create(objectives=objectives, limits={"max_trials": None})["warnings"]
    assert warning["path"] == "limits.max_trials"
    assert "until a trial reaches the target" in warning["message"]
    assert service.create(objectives=objectives, limits=TIMED, name="timed")["warnings"] == []


def test_failures_that_nothing_limits_are_a_warning(service: Api) -> None:
    limits = {"max_trials": None, "no_improvement": {"trials": 5}}
    [warning] = service.create(limits=limits)["warnings"]
    assert (warning["path"], "if all of them fail" in warning["message"]) == ("limits.max_trials", True)
    assert service.create(limits=limits, failures={"max_failed_trials": 9})["warnings"] == []
    assert service.create(limits=limits | {"max_seconds": 60})["warnings"] == []


def test_a_population_needs_a_number(service: Api) -> None:
    pbt = {"rule": "pbt", "interval": 2, "max_step": 6}
    message = refused(service, limits=TIMED, early_stopping=pbt)["limits.max_trials"]
    assert "is the population of pbt: must be a number" in message


def test_a_change_removes_the_number_and_sets_it_again(service: Api) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    problem = patched(service, name, 422, limits={"max_trials": None})
    assert [one["path"] for one in problem["errors"]] == ["limits.max_trials"]
    shown = patched(service, name, limits={"max_trials": None, "max_seconds": 3600})
    assert shown["spec"]["limits"]["max_trials"] is None
    assert changes(service, name)[0] == ("limits.max_trials", 2, None)
    for value in (0.1, 0.2, 0.3):
        ran(service, name, value)
    problem = patched(service, name, 422, limits={"max_seconds": None})
    assert [one["path"] for one in problem["errors"]] == ["limits.max_trials"]
    shown = patched(service, name, limits={"max_trials": 3})
    assert (shown["status"], shown["end_reason"]) == ("completed", "max_trials")
    assert changes(service, name)[-1] == ("limits.max_trials", None, 3)


def test_an_experiment_that_its_number_of_trials_has_ended_runs_again_without_one(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    ran(service, name, 0.5)
    shown = patched(service, name, limits={"max_trials": None, "max_seconds": 3600})
    assert (shown["status"], shown["end_reason"]) == ("running", None)
    for value in (0.6, 0.7):
        ran(service, name, value)
    assert service.get(f"/v1/experiments/{name}")["status"] == "running"


def test_an_experiment_that_another_limit_has_ended_does_not_run_again_with_another_number(service: Api) -> None:
    target = [MAXIMIZE | {"target": 0.4}]
    name = unlimited(service, objectives=target)
    held = asked(service, name)
    held.report(accuracy=0.5)
    held.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "target_reached"
    patched(service, name, 409, limits={"max_trials": 40})
    assert patched(service, name, objectives=[MAXIMIZE | {"target": 0.9}])["status"] == "running"


def test_trials_that_all_fail_in_the_same_way_end_it(service: Api) -> None:
    name = unlimited(service)
    while service.get(f"/v1/experiments/{name}")["status"] == "running":
        asked(service, name).fail()
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("failed", "too_many_failures")
    assert "failures.max_failed_trials" in patched(service, name, 409, priority=1, limits={"parallelism": 2})["detail"]
    assert patched(service, name, failures={"max_failed_trials": 50})["status"] == "running"


def test_any_number_of_configurations_may_be_enqueued(service: Api) -> None:
    name = unlimited(service, enqueue=[{"lr": 0.1}] * 150)
    service.post(f"/v1/experiments/{name}/trials", 201, json=[{"params": {"lr": 0.2}}] * 50)
    assert service.get(f"/v1/experiments/{name}")["counts"]["queued"] == 200


def test_winners_are_confirmed_in_addition_when_something_else_has_ended_the_search(service: Api) -> None:
    limits = {"max_trials": None, "parallelism": 10, "no_improvement": {"trials": 2}}
    name = unlimited(service, confirm={"top": 2, "seeds": 2}, limits=limits)
    searched(service, name, [0.9, 0.5, 0.6])
    assert len(confirmations(service, name)) == 4
    confirmed(service, name, {0: [0.9, 0.9], 2: [0.6, 0.6]})
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("completed", "no_improvement")


def test_confirmations_that_could_never_run_are_refused(service: Api) -> None:
    """A limit in time ends the search and its confirmations together."""
    message = refused(service, limits=TIMED, confirm={"top": 2, "seeds": 2})["confirm"]
    assert "limits.max_seconds ends the experiment before" in message
    assert "set limits.max_trials, limits.no_improvement or a target" in message


def test_early_stopping_and_the_sampler_are_chosen_for_an_unknown_number_of_trials(service: Api) -> None:
    created = service.create(limits=TIMED | {"parallelism": 4}, search="auto")
    assert (created["sampler"]["name"], created["early_stopping"]["name"]) == ("gp", "auto")
    grid = {f"p{n}": {"type": "int", "low": 0, "high": 9} for n in range(4)}
    large = service.create(limits=TIMED, space=grid, search={"sampler": "auto"}, name="large")
    assert large["sampler"]["name"] == "tpe"
    small = service.create(limits=TIMED, space=FINITE, search={"sampler": "auto"}, name="small")
    assert small["sampler"]["name"] == "brute_force"
    trials = "a budget of trials that only limits.max_seconds limits"
    assert small["sampler"]["why"] == f"the space has 3 configurations: {trials} can try them all"


def test_gp_may_become_slow_in_an_unknown_number_of_trials(service: Api) -> None:
    [warning] = service.create(limits=TIMED, search={"sampler": "gp"})["warnings"]
    assert "the search may have any number; those of auto" in warning["message"]


def test_a_preview_of_any_number_of_trials_has_samples(service: Api) -> None:
    part = {"space": FINITE, "search": "auto", "limits": TIMED}
    assert len(service.post("/v1/spaces/preview", json=part)["samples"]) == 3
    problem = service.post("/v1/spaces/preview", 422, json={"space": a_spec()["space"], "limits": {"max_trials": None}})
    assert [one["path"] for one in problem["errors"]] == ["limits.max_trials"]


def test_a_space_that_ends_the_search_may_be_confirmed(service: Api) -> None:
    confirm = {"top": 1, "seeds": 2}
    limits = {"max_trials": None, "parallelism": 10}
    name = unlimited(service, limits=limits, space=FINITE, search={"sampler": "grid"}, confirm=confirm)
    searched(service, name, [0.1, 0.2, 0.3])
    confirmed(service, name, {2: [0.3, 0.3]})
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "space_exhausted"


def test_a_search_whose_winners_are_confirmed_goes_on_when_its_number_is_removed(service: Api) -> None:
    objectives = [MAXIMIZE | {"target": 2.0}]
    limits = {"max_trials": 6, "parallelism": 10}
    name = unlimited(service, confirm={"top": 2, "seeds": 2}, limits=limits, objectives=objectives)
    searched(service, name, [0.1, 0.2])
    assert len(confirmations(service, name)) == 4
    assert patched(service, name, limits={"max_trials": None})["end_reason"] is None
    confirmed(service, name, {0: [0.1, 0.1], 1: [0.2, 0.2]})
    searched(service, name, [2.5])
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "target_reached"
    assert sorted(one["confirms"] for one in confirmations(service, name)) == [0, 0, 1, 1, 6, 6]
