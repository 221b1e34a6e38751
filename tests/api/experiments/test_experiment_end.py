"""How experiments end by themselves, and how the end is explained."""

from typing import Any

import pytest

from service.settings import Settings
from tests.conftest import Api, running

pytestmark = pytest.mark.slow


def ran(service: Api, name: str, value: float, outcome: str = "completed") -> bool:
    """False when the experiment gives no more trials."""
    if service.get(f"/v1/experiments/{name}")["status"] != "running":
        return False
    held = service.ask(name)
    assert held
    held.report(accuracy=value)
    held.finish(outcome)
    return True


def ending(service: Api, name: str) -> tuple[str, str, str]:
    shown = service.get(f"/v1/experiments/{name}")
    stored = [event["data"] for event in service.events(name) if event["kind"] == "experiment.ending"]
    assert [(one["reason"], one["detail"]) for one in stored] == [(shown["end_reason"], shown["end_detail"])]
    return shown["status"], shown["end_reason"], shown["end_detail"]


def limits(trials: int, min_delta: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"max_trials": 50, "no_improvement": {"trials": trials, "min_delta": min_delta}, **more}


def test_an_experiment_ends_after_the_given_number_of_trials_without_an_improvement(service: Api) -> None:
    name = service.create(limits=limits(3, 0.01))["name"]
    values = [0.5, 0.4, 0.6, 0.605, 0.1, 0.609]
    assert all(ran(service, name, value) for value in values)
    assert not ran(service, name, 0.9)
    status, reason, detail = ending(service, name)
    assert (status, reason) == ("completed", "no_improvement")
    assert detail == (
        "the last 3 finished trials did not improve on accuracy 0.6 (trial 2) by more than 0.01; "
        "the best of them: 0.609 (trial 5) (limits.no_improvement)"
    )


def test_with_minimize_a_lower_value_is_an_improvement(service: Api) -> None:
    objectives = [{"metric": "accuracy", "direction": "minimize"}]
    name = service.create(objectives=objectives, limits=limits(2))["name"]
    assert all(ran(service, name, value) for value in (0.5, 0.4, 0.3, 0.4, 0.3))
    assert ending(service, name)[1] == "no_improvement"


def test_failed_trials_are_ignored_and_trials_stopped_early_are_no_improvement(service: Api) -> None:
    rule = {"rule": "asha", "min_step": 1, "reduction_factor": 2}
    name = service.create(limits=limits(2), early_stopping=rule)["name"]
    assert ran(service, name, 0.9)
    for _ in range(3):
        held = service.ask(name)
        assert held
        held.fail("out_of_memory", "no room")
    for value in (0.1, 0.2):
        assert service.get(f"/v1/experiments/{name}")["status"] == "running"
        held = service.ask(name)
        assert held
        assert held.report(accuracy=value)["decision"] == "stop"
        held.finish("stopped")
    assert "none of them ran to its end" in ending(service, name)[2]


def test_the_running_trials_are_asked_to_stop(service: Api) -> None:
    name = service.create(limits=limits(1, parallelism=2))["name"]
    other = service.ask(name)
    assert other
    assert ran(service, name, 0.5)
    assert ran(service, name, 0.5)
    assert other.heartbeat()["decision"] == "stop"
    other.finish("stopped")
    assert ending(service, name)[1] == "no_improvement"


def test_trials_without_an_improvement_are_counted_across_restarts_and_processes(settings: Settings) -> None:
    with running(settings) as first:
        name = first.create(limits=limits(3))["name"]
        assert ran(first, name, 0.5)
        assert ran(first, name, 0.4)
    with running(settings) as second:
        assert ran(second, name, 0.4)
        assert ran(second, name, 0.4)
        assert ending(second, name)[1] == "no_improvement"


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"min_delta": 0.1}, {"trials": 2, "min_delta": -1}, {"trails": 2}])
def test_a_wrong_limit_is_reported(service: Api, wrong: dict[str, Any]) -> None:
    response = service.http.post("/v1/experiments", json={"name": "x"} | {"limits": {"no_improvement": wrong}})
    assert response.status_code == 422
    assert "limits.no_improvement" in response.text


def test_each_end_is_explained_with_figures(service: Api) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    assert ran(service, name, 0.5)
    assert ran(service, name, 0.5)
    assert ending(service, name) == (
        "completed",
        "max_trials",
        "all 2 trials have ended (limits.max_trials is 2)",
    )
    space = {"n": {"type": "int", "low": 0, "high": 1}}
    name = service.create(space=space, search={"sampler": "grid"})["name"]
    assert ran(service, name, 0.5)
    assert ran(service, name, 0.5)
    assert service.ask(name) is None
    assert "all configurations of the grid (2)" in ending(service, name)[2]
    name = service.create(objectives=[{"metric": "accuracy", "direction": "maximize", "target": 0.9}])["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.95)
    held.finish("stopped")
    assert ending(service, name) == (
        "completed",
        "target_reached",
        "trial 0: accuracy 0.95 reached the target 0.9",
    )


def test_too_many_failed_trials_fail_the_experiment(service: Api) -> None:
    name = service.create(failures={"max_failed_trials": 1})["name"]
    assert ran(service, name, 0.5)
    for message in ("ValueError: one", "ValueError: two"):
        held = service.ask(name)
        assert held
        held.fail(message=message)
    status, reason, detail = ending(service, name)
    assert (status, reason) == ("failed", "too_many_failures")
    assert detail == "2 trials failed (failures.max_failed_trials is 1); the last: ValueError: two"


@pytest.mark.parametrize("is_known_first", [True, False])
def test_an_exhausted_space_of_which_all_trials_failed_has_failed(service: Api, is_known_first: bool) -> None:
    space = {"a": {"type": "categorical", "choices": [1, 2]}}
    name = service.create(space=space, search={"sampler": "grid"}, limits={"max_trials": 9, "parallelism": 9})["name"]
    held = [service.ask(name), service.ask(name)]
    if is_known_first:
        assert service.ask(name) is None
    for one, message in zip(held, ("no room", "no data"), strict=True):
        assert one
        one.fail("user_error", message)
    if not is_known_first:
        assert service.ask(name) is None
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("failed", "too_many_failures")
    assert shown["end_detail"] == "2 trials failed (every configuration has been tried); the last: no data"
