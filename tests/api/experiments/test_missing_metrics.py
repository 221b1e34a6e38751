"""The experiment names metrics of objectives and constraints that its first trials do not report, before they end."""

from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def told(service: Api, name: str) -> Any:
    return service.get(f"/v1/experiments/{name}")["missing_metrics"]


def test_the_first_report_without_the_objective_tells(service: Api) -> None:
    name = service.create(limits={"max_trials": 4, "parallelism": 4})["name"]
    held = service.ask(name)
    assert held
    assert told(service, name) is None
    held.report(acc=0.5, loss=1.0)
    assert told(service, name) == (
        "no report so far has a number for accuracy; the newest report of trial 0 has acc, loss"
    )
    other = service.ask(name)
    assert other
    other.report(accuracy=0.5)
    assert told(service, name) is None


def test_a_later_report_with_it_takes_it_back(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report()
    assert (
        told(service, name) == "no report so far has a number for accuracy; the newest report of trial 0 has no metric"
    )
    held.report(accuracy=0.5)
    held.report(loss=0.5)
    assert told(service, name) is None


def test_constraints_and_all_objectives_count(service: Api) -> None:
    objectives = [{"metric": metric, "direction": "minimize"} for metric in ("loss", "size")]
    name = service.create(objectives=objectives, constraints=[{"metric": "latency", "max": 1}])["name"]
    held = service.ask(name)
    assert held
    held.report(loss=0.5, speed=3)
    expected = "no report so far has a number for size, latency; the newest report of trial 0 has loss, speed"
    assert told(service, name) == expected
    [listed] = [one for one in service.get("/v1/experiments?limit=1000")["items"] if one["name"] == name]
    assert listed["missing_metrics"] == expected


def test_a_metric_that_is_no_number_is_not_missing(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy="NaN")
    assert told(service, name) is None


def test_nothing_is_told_of_ended_trials(service: Api) -> None:
    name = service.create(limits={"max_trials": 4})["name"]
    held = service.ask(name)
    assert held
    held.report(acc=0.5)
    held.finish()
    assert told(service, name) is None


def test_a_metric_that_is_no_number_hides_no_other(service: Api) -> None:
    constraints = [{"metric": metric, "max": 1} for metric in ("latency", "size")]
    name = service.create(constraints=constraints)["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.5, latency="NaN")
    expected = "no report so far has a number for size; the newest report of trial 0 has accuracy, latency"
    assert told(service, name) == expected
