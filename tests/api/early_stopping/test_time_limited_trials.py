"""Rules that compare a trial with whole ones compare it also with those that their own time limit has ended."""

from typing import Any

import pytest
from sqlalchemy import select

from service.operations.time_limits import enforce_time_limits
from service.store.tables import MilestoneRow
from tests.conftest import Api, Held
from tests.store.leased_trials import let_pass

pytestmark = pytest.mark.slow

MEDIAN = {"rule": "median", "n_startup_trials": 3}
RULES = (MEDIAN, {"rule": "percentile", "percentile": 50, "n_startup_trials": 3}, {"rule": "wilcoxon"})


def ended(service: Api, name: str, *values: float) -> Held:
    """A trial that ends as by its time limit."""
    held = service.ask(name)
    assert held
    for value in values:
        held.report(accuracy=value)
    held.finish("stopped")
    assert held.shown()["status"] == "stopped"
    return held


def last_decision(service: Api, name: str, *values: float) -> str:
    held = service.ask(name)
    assert held
    return str([held.report(accuracy=value)["decision"] for value in values][-1])


def milestones(service: Api) -> list[tuple[int, int, float, int]]:
    columns = MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool
    with service.app.state.context.database.read() as session:
        return sorted(tuple(row) for row in session.execute(select(*columns)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["rule"])
def test_a_worse_trial_is_stopped(service: Api, rule: dict[str, Any]) -> None:
    name = service.create(early_stopping=rule, limits={"max_trials": 30, "parallelism": 30})["name"]
    for number in range(3):
        ended(service, name, *(0.5 + 0.01 * number + 0.001 * step for step in range(8)))
    assert last_decision(service, name, *(0.1 + 0.002 * step for step in range(8))) == "stop"
    replayed = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": rule})
    assert [stop["number"] for stop in replayed["stopped"]] == [3]


def test_a_trial_that_a_user_stops_is_not_compared_with(service: Api) -> None:
    name = service.create(early_stopping=MEDIAN)["name"]
    for _ in range(3):
        held = service.ask(name)
        assert held
        held.report(accuracy=0.9)
        service.post(f"/v1/trials/{held.trial}/stop")
        held.finish("stopped")
    assert last_decision(service, name, 0.1) == "continue"


def test_a_changed_rule_finds_the_same_ends_also_after_a_retry(service: Api) -> None:
    name = service.create(early_stopping=MEDIAN, limits={"max_trials": 30, "parallelism": 30})["name"]
    first = ended(service, name, 0.5, 0.6)
    ended(service, name, 0.4)
    service.post(f"/v1/trials/{first.trial}/retry")
    again = service.ask(name)
    assert again
    assert again.trial == first.trial
    for value in (0.5, 0.6, 0.7):
        again.report(accuracy=value)
    again.finish("stopped")
    found = milestones(service)
    assert [value for number, milestone, value, _ in found if (number, milestone) == (0, -1)] == [0.7]
    for rule in (RULES[1], MEDIAN):
        service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": rule}).raise_for_status()
    assert milestones(service) == found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["rule"])
def test_a_trial_that_is_retried_is_not_compared_with_until_it_has_ended_again(
    service: Api, rule: dict[str, Any]
) -> None:
    rule = rule | ({} if rule["rule"] == "wilcoxon" else {"n_startup_trials": 1})
    name = service.create(early_stopping=rule, limits={"max_trials": 30, "parallelism": 30})["name"]
    good = ended(service, name, *(0.9 + 0.001 * step for step in range(8)))
    bad = [0.1 + 0.002 * step for step in range(8)]
    assert last_decision(service, name, *bad) == "stop"
    service.post(f"/v1/trials/{good.trial}/retry")
    again = service.ask(name)
    assert again
    assert again.trial == good.trial
    assert last_decision(service, name, *bad) == "continue"
    again.fail()
    assert last_decision(service, name, *bad) == "continue"
    replayed = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": rule})
    assert [stop["number"] for stop in replayed["stopped"]] == [1]
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": {"rule": "none"}}).raise_for_status()
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": rule}).raise_for_status()
    assert last_decision(service, name, *bad) == "continue"
    service.post(f"/v1/trials/{good.trial}/retry")
    again = service.ask(name)
    assert again
    again.report(accuracy=0.92)
    again.finish("stopped")
    assert last_decision(service, name, *bad) == "stop"


def test_the_limit_of_the_service_is_the_cause(service: Api) -> None:
    limits = {"max_trials": 30, "parallelism": 30, "max_trial_seconds": 0.001}
    name = service.create(early_stopping=MEDIAN, limits=limits)["name"]
    for _ in range(3):
        ended(service, name, 0.5)
    causes = [event["data"]["cause"] for event in service.events(name) if event["kind"] == "trial.stopped"]
    assert causes == ["max_trial_seconds"] * 3
    assert [value for _, milestone, value, _ in milestones(service) if milestone == -1] == [0.5] * 3
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": RULES[1]}).raise_for_status()
    assert [value for _, milestone, value, _ in milestones(service) if milestone == -1] == [0.5] * 3


def out_of_time(service: Api, **failures: int) -> tuple[str, Held]:
    """A trial that has reported, and whose time limit has passed since."""
    limits = {"max_trials": 30, "max_trial_seconds": 60}
    name = service.create(limits=limits, failures=failures)["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.9)
    let_pass(service.app.state.context, 61)
    enforce_time_limits(service.app.state.context)
    assert held.heartbeat()["decision"] == "continue"
    return name, held


@pytest.mark.parametrize("kind", ["out_of_memory", "user_error", "silent"])
def test_a_failure_before_the_report_that_the_limit_waits_for_fails_the_trial(service: Api, kind: str) -> None:
    name, held = out_of_time(service, max_failed_trials=0)
    held.fail(kind, "no memory")
    shown = held.shown()
    assert (shown["status"], shown["failure_kind"], shown["reason"]) == ("failed", kind, "no memory")
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["end_reason"], shown["best"]) == ("too_many_failures", None)


@pytest.mark.parametrize("metrics", [{}, {"accuracyy": 0.9}])
def test_a_function_that_returns_without_the_objective_after_the_limit_has_failed(
    service: Api, metrics: dict[str, Any]
) -> None:
    name = service.create(limits={"max_trials": 3, "max_trial_seconds": 60}, failures={"max_failed_trials": 0})["name"]
    held = service.ask(name)
    assert held
    if metrics:
        held.report(**metrics)
    let_pass(service.app.state.context, 61)
    enforce_time_limits(service.app.state.context)
    held.finish("completed")
    shown = held.shown()
    assert (shown["status"], shown["failure_kind"]) == ("failed", "silent")
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "too_many_failures"


def test_a_failure_after_the_answer_that_the_limit_has_passed_is_no_failure(service: Api) -> None:
    name, held = out_of_time(service)
    assert held.report(accuracy=0.95)["decision"] == "stop"
    held.fail("user_error", "on the way out")
    shown = service.get(f"/v1/experiments/{name}")
    assert (held.shown()["status"], shown["best"]["value"]) == ("stopped", 0.95)


def test_a_longer_time_limit_counts_for_a_trial_that_a_caller_runs(service: Api) -> None:
    name = service.create(limits={"max_trials": 30, "max_trial_seconds": 60})["name"]
    held = service.ask(name)
    assert held
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trial_seconds": 600}}).raise_for_status()
    for seconds, decision in ((61, "continue"), (540, "stop")):
        let_pass(service.app.state.context, seconds)
        enforce_time_limits(service.app.state.context)
        assert held.report(accuracy=0.9)["decision"] == decision


def test_an_attempt_that_is_lost_after_the_limit_has_a_result(service: Api) -> None:
    _, held = out_of_time(service)
    held.fail("lost", "the node is gone")
    assert held.shown()["status"] == "stopped"
