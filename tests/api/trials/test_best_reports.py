"""An objective with `report: best`: the best of a trial's reports is its value, whatever it reports afterwards."""

from typing import Any

import pytest

from tests.api.early_stopping.population import a_population
from tests.api.trials.best_report_curves import BEST, CURVE, given
from tests.conftest import Api, Held, a_spec

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite", "postgresql")]


def trained(service: Api, name: str, *values: Any) -> Held:
    held = given(service, name)
    for value in values:
        held.report(accuracy=value)
    held.finish()
    return held


def value(held: Held) -> tuple[Any, Any]:
    shown = held.shown()
    assert shown["values"] == {"accuracy": shown["value"]}
    return shown["value"], shown["best_step"]


def test_the_best_report_gives_the_trial_its_value(service: Api) -> None:
    created = service.create(objectives=BEST)
    name = created["name"]
    assert created["spec"]["objectives"][0]["report"] == "best"
    held = given(service, name)
    seen = []
    for accuracy in CURVE:
        held.report(accuracy=accuracy)
        seen.append(value(held))
    assert seen == [(0.5, 1), (0.9, 2), (0.9, 2), (0.9, 2)]
    held.finish()
    assert (held.shown()["status"], held.shown()["step"], value(held)) == ("completed", 4, (0.9, 2))
    events = service.events(name)
    assert [one["data"]["is_best"] for one in events if one["kind"] == "report"] == [True, True, False, False]
    [end] = [one["data"] for one in events if one["kind"] == "trial.completed"]
    assert (end["values"], end["best_step"], end["step"]) == ({"accuracy": 0.9}, 2, 4)


@pytest.mark.parametrize("report", ["newest", None])
def test_without_it_the_newest_report_does(service: Api, report: str | None) -> None:
    created = service.create(objectives=[{**BEST[0], "report": report}])
    assert created["spec"]["objectives"][0]["report"] is None
    assert value(trained(service, created["name"], *CURVE)) == (0.4, None)


def test_less_is_better_and_the_first_of_equal_reports_is_the_best(service: Api) -> None:
    name = service.create(objectives=[{"metric": "accuracy", "direction": "minimize", "report": "best"}])["name"]
    assert value(trained(service, name, 0.5, 0.2, 0.2, 0.7)) == (0.2, 2)


def test_trials_rank_by_their_best_reports(service: Api) -> None:
    name = service.create(objectives=BEST, limits={"max_trials": 9, "no_improvement": {"trials": 2}})["name"]
    steady, peaked = trained(service, name, 0.6, 0.7, 0.8), trained(service, name, 0.9, 0.1)
    assert service.get(f"/v1/experiments/{name}/best")["id"] == peaked.trial
    [header, *rows] = service.http.get(f"/v1/experiments/{name}/trials?format=csv").text.splitlines()
    place = header.split(",").index("best_step")
    assert [row.split(",")[place] for row in rows] == ["3", "1"]
    listed = service.get(f"/v1/experiments/{name}/trials", params={"sort": "value"})["items"]
    assert [one["id"] for one in listed] == [peaked.trial, steady.trial]
    trained(service, name, 0.89)
    trained(service, name, 0.9, 0.2)
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["end_reason"], shown["best"]["number"], shown["best"]["value"]) == ("no_improvement", 1, 0.9)


def test_a_further_report_of_the_best_step_replaces_its_value(service: Api) -> None:
    name = service.create(objectives=BEST, step_metric="epoch")["name"]
    held = given(service, name)
    for epoch, accuracy in ((1, 0.6), (2, 0.9), (3, 0.7)):
        held.report(epoch=epoch, accuracy=accuracy)
    held.report(epoch=2, accuracy=0.65)
    assert value(held) == (0.7, 3)
    held.report(epoch=3, accuracy=0.1)
    assert value(held) == (0.65, 2)
    held.report(epoch=2, loss=1.0)
    assert value(held) == (0.65, 2)


def test_what_a_later_attempt_reports_for_a_step_that_was_reached_does_not_count(service: Api) -> None:
    name = service.create(objectives=BEST)["name"]
    first = given(service, name)
    first.report(accuracy=0.5)
    first.report(loss=3.0)
    first.report(accuracy=0.6)
    first.fail("lost", "its node is gone")
    again = given(service, name)
    again.report(accuracy=0.99)
    assert value(again) == (0.6, 3)
    again.report(accuracy=0.8)  # of step 2, for which the first attempt has none
    assert value(again) == (0.8, 2)
    again.report(accuracy=0.99)
    again.report(accuracy=0.7)
    again.finish()
    assert value(again) == (0.8, 2)


def test_a_trial_that_diverges_fails_although_it_was_the_best(service: Api) -> None:
    name = service.create(objectives=BEST)["name"]
    held, other = given(service, name), trained(service, name, 0.3)
    held.report(accuracy=0.9)
    assert held.report(accuracy="NaN")["decision"] == "stop"
    held.finish("stopped")
    assert (held.shown()["status"], held.shown()["failure_kind"]) == ("failed", "diverged")
    assert service.get(f"/v1/experiments/{name}/best")["id"] == other.trial


def test_a_target_that_is_lowered_below_the_best_report_is_reached(service: Api) -> None:
    name = service.create(objectives=[{**BEST[0], "target": 0.95}])["name"]
    held = trained(service, name, *CURVE)
    service.http.patch(f"/v1/experiments/{name}", json={"objectives": [{**BEST[0], "target": 0.8}]}).raise_for_status()
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["end_reason"], shown["end_detail"]) == (
        "target_reached",
        "trial 0: accuracy 0.9 reached the target 0.8",
    )
    assert shown["best"]["id"] == held.trial


def test_which_report_counts_cannot_be_changed(service: Api) -> None:
    name = service.create(objectives=BEST)["name"]
    objective = {"metric": "accuracy", "direction": "maximize", "target": 0.9}
    refused = service.http.patch(f"/v1/experiments/{name}", json={"objectives": [objective]})
    assert refused.status_code == 422
    assert "{metric: accuracy, direction: maximize, report: best}" in refused.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"objectives": [*BEST, {"metric": "loss", "direction": "minimize"}]}, "works with one objective only"),
        ({"constraints": [{"metric": "latency", "max": 5}]}, "does not work with constraints"),
        ({**a_population(), "objectives": BEST}, "does not work with pbt"),
        ({"objectives": [{**BEST[0], "report": "last"}]}, "should be 'newest' or 'best'"),
    ],
)
def test_what_it_does_not_work_with_is_refused(service: Api, changes: dict[str, Any], why: str) -> None:
    errors = service.post("/v1/experiments", 422, json=a_spec(**{"objectives": BEST, **changes}))["errors"]
    assert any(one["path"] == "objectives.0.report" and why in one["message"] for one in errors), errors
