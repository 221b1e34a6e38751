"""Early stopping over HTTP: on a named metric, with stored decisions, which retries do not change."""

from typing import Any

import pytest

from service.runtime.proposals import Proposals
from tests.conftest import Api, Held, a_spec

pytestmark = pytest.mark.slow

TWO = [{"metric": "accuracy", "direction": "maximize"}, {"metric": "latency", "direction": "minimize"}]


def ran(service: Api, name: str, *reports: dict[str, Any]) -> Held:
    held = service.ask(name)
    assert held
    for metrics in reports:
        held.report(**metrics)
    held.finish()
    return held


def decisions(held: Held) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = held.api.get(f"/v1/trials/{held.trial}/decisions")["items"]
    return found


def test_with_several_objectives_the_metric_must_be_named(service: Api) -> None:
    spec = a_spec(objectives=TWO, early_stopping={"rule": "asha"})
    response = service.http.post("/v1/experiments", json=spec)
    assert response.status_code == 422
    assert [error["path"] for error in response.json()["errors"]] == ["early_stopping.metric"]
    assert "accuracy, latency" in response.json()["detail"]


@pytest.mark.parametrize(
    ("metric", "direction"), [("latency", None), ("val_loss", "minimize")], ids=["an objective", "another metric"]
)
def test_trials_are_stopped_on_the_metric_that_is_named(service: Api, metric: str, direction: str | None) -> None:
    rule = {"rule": "asha", "reduction_factor": 3, "metric": metric, "direction": direction}
    name = service.create(objectives=TWO, early_stopping=rule)["name"]
    ran(service, name, {"accuracy": 0.1, "latency": 5.0, "val_loss": 5.0})
    slow = service.ask(name)
    assert slow
    assert slow.report(accuracy=0.9)["decision"] == "continue"  # without the metric
    assert slow.report(accuracy=0.9, latency=6.0, val_loss=6.0)["decision"] == "stop"
    [decision] = [one for one in decisions(slow) if one["decision"] == "stop"]
    assert (decision["metric"], decision["value"], decision["cutoff"]) == (metric, 6.0, 5.0)
    assert (decision["step"], decision["milestone"], decision["compared_with"]) == (2, 1, [0])
    assert decision["reason"].startswith(f"{metric} 6 at step 2 is above 5, the cutoff")
    decided = [event["data"] for event in service.events(name) if event["kind"] == "decision"]
    assert decided[-1]["compared_with"] == [0]


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "median", "n_startup_trials": 1, "grace_steps": 9},
        {"rule": "wilcoxon", "p_threshold": 0.6, "grace_steps": 9},
        {"rule": "patient", "patience": 0, "wrapped_rule": {"rule": "threshold", "lower": 0.5}, "grace_steps": 9},
    ],
    ids=lambda rule: rule["rule"],
)
def test_a_retry_changes_no_decision(service: Api, rule: dict[str, Any]) -> None:
    name = service.create(early_stopping=rule, failures={"max_retries": 1})["name"]
    ran(service, name, *({"accuracy": value} for value in (0.6, 0.7, 0.8, 0.9)))
    held = service.ask(name)
    assert held
    for value in (0.5, 0.45, 0.4):
        held.report(accuracy=value)
    before = decisions(held)
    assert before
    held.fail()
    again = service.ask(name)
    assert again
    assert again.trial == held.trial
    for value in (0.9, 0.1, 0.9):
        again.report(accuracy=value)
    assert decisions(again) == before
    again.report(accuracy=0.3)
    assert decisions(again)[:-1] == before
    assert decisions(again)[-1]["step"] == 4


EARLY = {
    "space": {"lr": {"type": "float", "low": 0, "high": 1}, "idle": {"type": "float", "low": 0, "high": 1}},
    "early_stopping": {"rule": "asha", "max_step": 9},
    "search": {"sampler": "tpe", "seed": 3, "options": {"n_startup_trials": 4}, "curve_score": True},
    "limits": {"max_trials": 25, "parallelism": 4},
}


def train(service: Api, held: Held) -> str:
    """Report accuracies until the service stops the trial; return how it ended."""
    params = held.assignment["params"]
    for step in range(9):
        if held.report(accuracy=step - abs(params["lr"] - 0.3))["decision"] == "stop":
            held.finish("stopped")
            return "pruned"
    held.finish()
    return "completed"


def test_importance_uses_the_trials_that_early_stopping_ended(service: Api) -> None:
    name = service.create(**EARLY)["name"]
    path = f"/v1/experiments/{name}/importance"
    ends = []
    for number in range(24):
        held = service.ask(name)
        assert held
        ends.append(train(service, held))
        if number == 0:
            assert service.get(path)["measure"] == "value"  # nothing has been stopped yet
    assert ends.count("completed") < 10
    held = service.ask(name)
    assert held
    held.report(accuracy="nan")
    held.finish("failed", error={"kind": "diverged", "message": "accuracy is nan"})
    for evaluator in ("ped_anova", "fanova"):
        found = service.get(path, params={"evaluator": evaluator})
        assert (found["measure"], found["trial_count"], found["used_count"]) == ("curve_score", 25, 25)
        assert next(iter(found["parameters"])) == "lr"
        assert found["reason"] is None


def test_a_search_by_curves_goes_on_after_a_restart_as_if_undisturbed(service: Api) -> None:
    """A fresh view of what is stored proposes the same, while trials run between their rungs."""
    name = service.create(**EARLY)["name"]
    context = service.app.state.context
    running = [service.ask(name) for _ in range(4)]
    for number in range(4, 14):
        held = running.pop(0)
        assert held
        if train(service, held):
            running.append(service.ask(name))
        for one in running[:2]:
            assert one
            one.report(accuracy=number / 10)
        experiment = service.get(f"/v1/experiments/{name}")["id"]
        fresh = Proposals(context.database).propose(experiment, number + 1)
        known = context.proposals.propose(experiment, number + 1)
        assert known == fresh
        assert fresh.seen_milestone


def test_a_search_under_constraints_goes_on_after_a_restart_as_if_undisturbed(service: Api) -> None:
    """Running trials have reached rungs and are feasible, after the view has read them without values."""
    spec = EARLY | {"constraints": [{"metric": "memory", "max": 1}]}
    name = service.create(**spec)["name"]
    context = service.app.state.context
    for number in range(8):
        held = service.ask(name)
        assert held
        held.report(accuracy=0.1, memory=number % 2 + 0.5)
        held.finish("stopped")
    experiment = service.get(f"/v1/experiments/{name}")["id"]
    running = [service.ask(name) for _ in range(3)]
    context.proposals.propose(experiment, 11)
    for number, one in enumerate(running):
        assert one
        one.report(accuracy=0.9 + number / 100, memory=0.5)
    known = context.proposals.propose(experiment, 11)
    assert known.params == Proposals(context.database).propose(experiment, 11).params


def test_a_proposal_computed_before_a_rung_is_not_used_after_it(service: Api) -> None:
    name = service.create(**{**EARLY, "limits": {"max_trials": 25, "parallelism": 7}})["name"]
    context = service.app.state.context
    held = [one for one in (service.ask(name) for _ in range(6)) if one]
    for one in held[:5]:
        one.report(accuracy=0.5)
    experiment = service.get(f"/v1/experiments/{name}")["id"]
    before = context.proposals.propose(experiment, 6)
    held[5].report(accuracy=0.9)
    following = service.ask(name)
    assert following
    after = Proposals(context.database).propose(experiment, 6)
    assert before.params != after.params
