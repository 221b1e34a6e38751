"""A further attempt reports steps that an earlier one has reached: what that reported stays, what it lacks counts."""

from typing import Any

import pytest

from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite", "postgresql")]
BY_EPOCH: dict[str, Any] = {"step_metric": "epoch", "limits": {"max_trials": 4}}
TWO = [{"metric": "accuracy", "direction": "maximize"}, {"metric": "size", "direction": "minimize"}]


def given(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def lost_after(service: Api, name: str, **metrics: Any) -> Held:
    """The second attempt, after the first one was lost between two reports of an epoch."""
    first = given(service, name)
    first.report(epoch=1, checkpoint="/c/1", **metrics)
    first.fail("lost", "its node is gone")
    return given(service, name)


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ({}, {"loss": 0.5}, {"accuracy": 0.9}),
        ({"objectives": TWO}, {"accuracy": 0.5}, {"size": 3}),
        ({"constraints": [{"metric": "latency", "max": 5}]}, {"accuracy": 0.5}, {"latency": 3}),
    ],
)
def test_a_metric_that_the_lost_attempt_did_not_come_to_report_counts(
    service: Api, changes: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    held = lost_after(service, service.create(**BY_EPOCH | changes)["name"], **before)
    held.report(epoch=1, **after)
    held.finish()
    shown = held.shown()
    assert (shown["status"], shown["reason"], shown["feasible"]) == (
        "completed",
        None,
        True if "constraints" in changes else None,
    )
    [point] = service.get(f"/v1/trials/{held.trial}/reports")["items"]
    assert (point["attempt"], point["metrics"]) == (1, {"epoch": 1, **before, **after})
    events = service.events(shown["experiment_id"])
    added = [one["data"] for one in events if one["kind"] == "report"]
    assert [(one["attempt"], one["metrics"]) for one in added] == [(1, {"epoch": 1, **before}), (2, after)]


def test_what_the_first_attempt_has_reported_for_a_step_stays(service: Api) -> None:
    held = lost_after(service, service.create(**BY_EPOCH)["name"], accuracy=0.5)
    held.report(epoch=1, accuracy=0.9)
    held.finish()
    assert held.shown()["value"] == 0.5


@pytest.mark.parametrize("unusable", ["NaN", "no number"])
def test_a_retried_trial_replaces_an_objective_that_was_no_number(service: Api, unusable: str) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    first = given(service, name)
    first.report(accuracy=0.1)
    first.report(accuracy=unusable)
    first.finish("stopped")
    assert first.shown()["status"] == "failed"
    service.post(f"/v1/trials/{first.trial}/retry")
    again = given(service, name)
    assert again.trial == first.trial
    for value in (0.3, 0.9):
        again.report(accuracy=value)
    again.finish()
    shown = again.shown()
    assert (shown["status"], shown["value"]) == ("completed", 0.9)
    points = service.get(f"/v1/trials/{again.trial}/reports")["items"]
    assert [point["metrics"]["accuracy"] for point in points] == [0.1, 0.9]


def test_steps_before_the_newest_one_do_not_become_the_newest_value(service: Api) -> None:
    """The second attempt reports at other steps, as where reports follow a clock."""
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.99}]
    name = service.create(objectives=objectives, **BY_EPOCH)["name"]
    first = given(service, name)
    first.report(epoch=2, accuracy=0.2)
    first.report(epoch=4, accuracy=0.9)
    first.fail("lost", "its node is gone")
    second = given(service, name)
    for epoch, accuracy in ((1, 0.1), (3, 0.3)):
        second.report(epoch=epoch, accuracy=accuracy)
        assert second.shown()["value"] == 0.9
    second.report(epoch=4, accuracy=0.8)
    second.report(epoch=5, accuracy=0.85)
    second.finish()
    assert second.shown()["value"] == 0.85
    points = service.get(f"/v1/trials/{second.trial}/reports")["items"]
    assert [(point["step"], point["attempt"]) for point in points] == [(1, 2), (2, 1), (3, 2), (4, 1), (5, 2)]


def test_a_repeated_step_that_diverges_before_the_newest_one_fails_the_trial(service: Api) -> None:
    held = lost_after(service, service.create(**BY_EPOCH)["name"], accuracy=0.5)
    assert held.report(epoch=0, accuracy="NaN")["decision"] == "stop"
    held.finish("stopped")
    assert held.shown()["failure_kind"] == "diverged"


def test_a_constraint_that_is_no_number_before_the_newest_step_does_not_hide_the_known_one(service: Api) -> None:
    constraints = [{"metric": "latency", "max": 5}]
    name = service.create(constraints=constraints, **BY_EPOCH)["name"]
    first = given(service, name)
    first.report(epoch=4, accuracy=0.9, latency=1)
    first.fail("lost", "its node is gone")
    second = given(service, name)
    second.report(epoch=1, accuracy=0.1, latency="NaN")
    second.report(epoch=4, accuracy=0.9, latency=1)
    second.finish()
    shown = second.shown()
    assert (shown["status"], shown["feasible"], shown["value"]) == ("completed", True, 0.9)
