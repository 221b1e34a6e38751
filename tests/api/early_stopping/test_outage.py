"""Trials that train on while the service is away end as they would have without the outage.

Their reports arrive in one batch, followed by `finish`. What comes after the deciding report is kept aside.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.early_stopping.population import a_population, decisions, is_running, loss_of, trials
from tests.conftest import Api, Held, a_spec

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

STEPS = 6
SLOW = pytest.mark.slow  # together they take ten seconds
Trains = Callable[[Held], None]


def last_steps(held: Held) -> range:
    resume = held.assignment["resume"]
    return range(resume["step"] + 1 if resume else 1, STEPS + 1)


def report_of(held: Held, step: int, sequence: int) -> dict[str, Any]:
    number = held.assignment["number"]
    # The URI leaves the attempt out, so that both courses of the experiment have the same ones.
    return {"sequence": sequence, "metrics": {"loss": loss_of(number, step)}, "checkpoint": f"/{number}-{step}"}


def leaves_at_the_decision(held: Held) -> None:
    for sequence, step in enumerate(last_steps(held)):
        if held.call("reports", 200, {"reports": [report_of(held, step, sequence)]})["decision"] == "stop":
            held.finish("stopped")
            return
    held.finish()


def trains_on_to_its_end(held: Held) -> None:
    reports = [report_of(held, step, sequence) for sequence, step in enumerate(last_steps(held))]
    held.call("reports", 200, {"reports": reports})
    held.finish()


def trains_on_in_two_batches(held: Held) -> None:
    reports = [report_of(held, step, sequence) for sequence, step in enumerate(last_steps(held))]
    for part in (reports[:-1], reports[-1:], reports):
        if part:
            held.call("reports", 200, {"reports": part})
    held.finish()


def fails_later(held: Held) -> None:
    reports = [report_of(held, step, sequence) for sequence, step in enumerate(last_steps(held))]
    answer = held.call("reports", 200, {"reports": reports})
    held.finish() if answer["decision"] == "continue" else held.fail()


def course(service: Api, spec: dict[str, Any], train: Trains) -> dict[str, Any]:
    """What became of an experiment, without ids and times."""
    name = service.create(**spec)["name"]
    while is_running(service, name):
        given = [service.ask(name) for _ in range(spec["limits"]["parallelism"])]
        for held in filter(None, given):
            train(held)
    shown = trials(service, name)
    ended = service.get(f"/v1/experiments/{name}")
    return {
        "trials": [
            {key: one[key] for key in ("status", "reason", "failure_kind", "params", "values", "step")} for one in shown
        ],
        "resumed": [[attempt["resumed_from"] for attempt in one["attempts"]] for one in shown],
        "curves": [
            [(point["step"], point["attempt"], point["metrics"], point["counted"]) for point in curve(service, one)]
            for one in shown
        ],
        "decisions": [
            [{key: made[key] for key in made.keys() - {"at"}} for made in decisions(service, one)] for one in shown
        ],
        "saved": [one["checkpoint"] and one["checkpoint"]["uri"] for one in shown],
        "best": service.get(f"/v1/experiments/{name}/best")["number"],
        "ended": (ended["status"], ended["end_reason"]),
    }


def curve(service: Api, trial: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/trials/{trial['id']}/reports", params=query)["items"]
    return found


RULES = {
    "pbt": {"rule": "pbt", "interval": 3, "max_step": STEPS},
    "asha": {"rule": "asha", "min_step": 1, "reduction_factor": 2},
    "promotion": {"rule": "asha", "min_step": 1, "reduction_factor": 2, "promote": True},
    "hyperband": {"rule": "hyperband", "min_step": 1, "max_step": STEPS, "reduction_factor": 2},
    "median": {"rule": "median", "n_startup_trials": 1, "n_warmup_steps": 2},
    "threshold": {"rule": "threshold", "upper": 2.5},
}


COURSES = [
    (rule, trains_on_to_its_end) if rule in {"pbt", "asha"} else pytest.param(rule, trains_on_to_its_end, marks=SLOW)
    for rule in RULES
] + [
    pytest.param(rule, train, marks=SLOW)
    for rule in ("pbt", "promotion")
    for train in (trains_on_in_two_batches, fails_later)
]


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(("rule", "train"), COURSES)
def test_an_experiment_comes_out_as_without_the_outage(service: Api, rule: str, train: Trains) -> None:
    """The members of the population are 4, with an interval of 3 and 6 steps."""
    spec = a_population(early_stopping=RULES[rule], limits={"max_trials": 4, "parallelism": 4})
    spec["search"] = {"sampler": "random", "seed": 7}
    undisturbed = course(service, spec | {"name": "undisturbed"}, leaves_at_the_decision)
    assert course(service, spec | {"name": "disturbed"}, train) == undisturbed
    assert any(one["decision"] in ("stop", "pause") for made in undisturbed["decisions"] for one in made)


@pytest.mark.databases("sqlite", "postgresql")
def test_what_does_not_count_is_kept_aside_with_the_reason(service: Api) -> None:
    name = service.create(**a_population(early_stopping={"rule": "threshold", "upper": 1.5}))["name"]
    _good, bad = service.ask(name), service.ask(name)
    assert bad
    reports = [report_of(bad, step, step) for step in range(8)]
    reports[2]["metrics"]["loss"] = 0.5
    reports[0]["metrics"]["loss"] = reports[1]["metrics"]["loss"] = 1.0
    answer = bad.call("reports", 200, {"reports": reports})
    assert (answer["decision"], answer["deciding_sequence"]) == ("stop", 3)
    assert bad.heartbeat()["deciding_sequence"] == 3
    assert bad.finish()["status"] == "pruned"
    shown = bad.shown()
    assert [point["sequence"] for point in curve(service, shown)] == [0, 1, 2, 3]
    aside = curve(service, shown, counted=False)
    assert [(one["sequence"], one["metrics"], one["counted"]) for one in aside] == [
        (number, reports[number]["metrics"], False) for number in (4, 5, 6, 7)
    ]
    assert aside[0]["reason"].startswith("made after report 3, which ended the attempt: loss 1.97")
    first = service.get(f"/v1/trials/{bad.trial}/reports", params={"counted": False, "limit": 3})
    rest = service.get(f"/v1/trials/{bad.trial}/reports", params={"counted": False, "cursor": first["next_cursor"]})
    assert first["items"] + rest["items"] == aside
    assert (shown["attempts"][0]["uncounted_reports"], shown["checkpoint"]["uri"]) == (4, "/1-3")
    kinds = [event["kind"] for event in service.events(name) if event["trial"] == bad.trial]
    assert (kinds.count("report"), kinds.count("report.uncounted")) == (4, 4)


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("values", "status", "step"), [([0.9, 0.1, 0.8], "completed", 2), ([0.9, "NaN", 0.1], "failed", 2)]
)
def test_a_target_and_a_divergence_end_the_curve_where_they_were_reported(
    service: Api, values: list[Any], status: str, step: int
) -> None:
    objectives = [{"metric": "loss", "direction": "minimize", "target": 0.2}]
    held = service.ask(service.create(**a_spec(objectives=objectives))["name"])
    assert held
    reports = [{"sequence": n, "metrics": {"loss": value}} for n, value in enumerate(values)]
    held.call("reports", 200, {"reports": reports})
    assert held.finish()["status"] == status
    assert held.shown()["step"] == step
    assert held.shown()["value"] == (values[1] if status == "completed" else 0.9)


@pytest.mark.databases("sqlite", "postgresql")
def test_a_failure_after_the_decision_is_charged_to_no_budget(service: Api) -> None:
    rule = {"rule": "asha", "min_step": 2, "reduction_factor": 3, "promote": True}
    spec = a_population(early_stopping=rule, failures={"max_retries": 1}, limits={"max_trials": 1, "parallelism": 1})
    name = service.create(**spec)["name"]
    first = service.ask(name)
    assert first
    first.call("reports", 200, {"reports": [report_of(first, step, step - 1) for step in (1, 2, 3)]})
    assert first.fail()["status"] == "queued"  # it is the only one, so it is promoted
    assert first.shown()["attempts"][0]["error"]["kind"] == "user_error"
    for status in ("queued", "failed"):
        again = service.ask(name)
        assert again
        assert again.assignment["resume"]["step"] == 2
        again.report(loss=0.5)
        assert again.fail()["status"] == status


def test_a_user_who_stops_a_trial_gets_what_it_reports_until_it_leaves(service: Api) -> None:
    """The service cannot know which report the trial would have left at."""
    held = service.ask(service.create(**a_spec())["name"])
    assert held
    service.post(f"/v1/trials/{held.trial}/stop")
    reports = [{"sequence": n, "metrics": {"accuracy": n}} for n in range(3)]
    assert held.call("reports", 200, {"reports": reports})["deciding_sequence"] is None
    assert held.finish("stopped")["status"] == "stopped"
    assert (held.shown()["step"], held.shown()["attempts"][0]["uncounted_reports"]) == (3, 0)
