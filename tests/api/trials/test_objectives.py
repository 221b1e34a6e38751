"""Several objectives, constraints, the best trials and importance, over HTTP."""

import csv
import io
import random
from typing import Any

import optuna
import pytest

from tests.conftest import Api, Held, a_spec

pytestmark = pytest.mark.slow

TWO = [{"metric": "loss", "direction": "minimize"}, {"metric": "accuracy", "direction": "maximize"}]
SMALL = [{"metric": "size", "max": 10}]

ADVICE = "Report the objective under its name, or submit with another name"


def ran(service: Api, experiment: str, **metrics: Any) -> dict[str, Any]:
    """A trial that reports once and completes."""
    held = service.ask(experiment)
    assert held
    held.report(**metrics)
    held.finish()
    return held.shown()


def refused(service: Api, **changes: Any) -> dict[str, str]:
    problem = service.post("/v1/experiments", 422, json=a_spec(**changes))
    return {one["path"]: one["message"] for one in problem["errors"]}


def test_a_trial_shows_the_newest_value_of_each_objective(service: Api) -> None:
    held = service.ask(service.create(objectives=TWO)["name"])
    assert held
    held.report(loss=1.5)
    assert held.shown()["values"] == {"loss": 1.5, "accuracy": None}
    held.report(accuracy=0.5)
    held.report(loss=0.5)
    held.finish()
    shown = held.shown()
    assert (shown["status"], shown["values"], shown["feasible"]) == ("completed", {"loss": 0.5, "accuracy": 0.5}, None)
    assert shown["value"] is None, "with several objectives there is no single value"


def test_a_trial_of_one_objective_shows_its_value_by_name_and_alone(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    assert (held.shown()["values"], held.shown()["value"]) == ({"accuracy": None}, None)
    held.report(accuracy=0.5)
    held.finish()
    [listed] = service.get(f"/v1/experiments/{name}/trials")["items"]
    best, shown = service.get(f"/v1/experiments/{name}/best"), service.get(f"/v1/experiments/{name}")["best"]
    [end] = [event["data"] for event in service.events(name) if event["kind"] == "trial.completed"]
    for one in (held.shown(), listed, best, shown, end):
        assert (one["values"], one["value"]) == ({"accuracy": 0.5}, 0.5)


def test_a_trial_that_lacks_one_of_the_objectives_fails_as_silent(service: Api) -> None:
    shown = ran(service, service.create(objectives=TWO)["name"], loss=0.5, other=1)
    assert (shown["status"], shown["failure_kind"]) == ("failed", "silent")
    assert shown["reason"] == f"ended without ever reporting 'accuracy'; it reported: loss, other. {ADVICE}"


def test_any_objective_may_diverge(service: Api) -> None:
    held = service.ask(service.create(objectives=TWO)["name"])
    assert held
    assert held.report(loss=1, accuracy="NaN")["decision"] == "stop"
    held.finish()
    assert held.shown()["failure_kind"] == "diverged"
    assert "accuracy" in held.shown()["reason"]


def test_the_best_of_several_objectives_is_optunas_pareto_front(service: Api) -> None:
    name = service.create(objectives=TWO, limits={"max_trials": 30})["name"]
    chance, study = random.Random(3), optuna.create_study(directions=["minimize", "maximize"])  # noqa: S311
    for _ in range(30):
        values = [chance.randint(0, 9), chance.randint(0, 9)]
        study.add_trial(optuna.trial.create_trial(values=values))
        ran(service, name, loss=values[0], accuracy=values[1])
    expected = sorted((trial.values[0], trial.number) for trial in study.best_trials)
    front = service.get(f"/v1/experiments/{name}/best")
    assert [(one["values"]["loss"], one["number"]) for one in front["items"]] == expected
    assert (front["count"], front["next_cursor"]) == (len(expected), None)
    assert [one["metric"] for one in front["objectives"]] == ["loss", "accuracy"]
    assert service.get(f"/v1/experiments/{name}")["best"] is None


def test_a_long_front_has_pages(service: Api) -> None:
    name = service.create(objectives=TWO)["name"]
    for number in range(5):
        ran(service, name, loss=number, accuracy=number)
    seen: list[int] = []
    cursor = None
    while cursor or not seen:
        page = service.get(f"/v1/experiments/{name}/best", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        seen += [one["number"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [0, 1, 2, 3, 4]


def test_pages_continue_after_a_trial_that_has_left_the_front(service: Api) -> None:
    name = service.create(objectives=TWO)["name"]
    for number in range(4):
        ran(service, name, loss=number, accuracy=number)
    first = service.get(f"/v1/experiments/{name}/best?limit=2")
    assert [one["number"] for one in first["items"]] == [0, 1]
    ran(service, name, loss=0.5, accuracy=2)
    rest = service.get(f"/v1/experiments/{name}/best", params={"cursor": first["next_cursor"]})
    assert [one["number"] for one in rest["items"]] == [3]


def test_the_best_trial_is_the_best_feasible_one(service: Api) -> None:
    name = service.create(constraints=SMALL)["name"]
    ran(service, name, accuracy=0.9, size=11)
    kept = ran(service, name, accuracy=0.5, size=10)
    ran(service, name, accuracy=0.8)
    assert service.get(f"/v1/experiments/{name}/best")["id"] == kept["id"]
    assert service.get(f"/v1/experiments/{name}")["best"]["id"] == kept["id"]
    shown = service.get(f"/v1/experiments/{name}/trials")["items"]
    assert [(one["feasible"], one["constraints"]) for one in shown] == [
        (False, {"size": 11}),
        (True, {"size": 10}),
        (False, {"size": None}),
    ]
    assert [one["reason"] for one in shown] == [
        "infeasible: size 11 is above 10",
        None,
        "infeasible: size was not reported, or was not a finite number",
    ]


def test_infeasible_trials_are_not_on_the_front(service: Api) -> None:
    name = service.create(objectives=TWO, constraints=SMALL)["name"]
    ran(service, name, loss=0, accuracy=1, size=99)
    ran(service, name, loss=1, accuracy=0.5, size=1)
    assert [one["number"] for one in service.get(f"/v1/experiments/{name}/best")["items"]] == [1]


@pytest.mark.parametrize("objectives", [TWO[1:], TWO])
def test_while_no_trial_is_feasible_the_nearest_one_is_named(service: Api, objectives: list[dict[str, str]]) -> None:
    name = service.create(objectives=objectives, constraints=[*SMALL, {"metric": "loss", "max": 5}])["name"]
    assert "has completed with all of its constraints' metrics" in best_missing(service, name)["detail"]
    for loss, size in [(9, 12), (5, 11.5), (4, 30)]:
        ran(service, name, accuracy=0.5, loss=loss, size=size)
    problem = best_missing(service, name)
    assert "nearest is trial 1: size 11.5 is above 10" in problem["detail"]
    assert problem["nearest"]["number"] == 1


def best_missing(service: Api, name: str) -> dict[str, Any]:
    problem: dict[str, Any] = service.get(f"/v1/experiments/{name}/best", 404)
    return problem


def test_a_constraint_that_is_not_a_number_becomes_unknown(service: Api) -> None:
    held = service.ask(service.create(constraints=SMALL)["name"])
    assert held
    held.report(accuracy=0.5, size=1)
    assert held.shown()["feasible"] is True
    held.report(size="NaN")
    assert held.shown()["feasible"] is None
    held.finish()
    assert (held.shown()["status"], held.shown()["feasible"]) == ("completed", False)


def test_one_feasible_trial_must_reach_the_targets_of_all_objectives(service: Api) -> None:
    objectives = [TWO[0] | {"target": 0.1}, TWO[1] | {"target": 0.9}, {"metric": "speed", "direction": "maximize"}]
    name = service.create(objectives=objectives, constraints=SMALL)["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    assert first.report(loss=0.05, accuracy=0.5, size=1)["decision"] == "continue"
    assert second.report(loss=0.5, accuracy=0.95, size=1)["decision"] == "continue"
    assert first.report(accuracy=0.95, size=11)["decision"] == "continue"
    answer = first.report(size=2, speed=1)
    assert answer["decision"] == "stop"
    assert answer["reason"] == "loss 0.05 reached the target 0.1 and accuracy 0.95 reached the target 0.9"
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "target_reached"


def test_a_target_ends_the_search_only_when_its_trial_has_reported_all_objectives(service: Api) -> None:
    name = service.create(objectives=[TWO[0] | {"target": 0.1}, TWO[1]])["name"]
    held = service.ask(name)
    assert held
    assert held.report(loss=0.05)["decision"] == "continue"
    assert held.report(accuracy=0.9)["decision"] == "stop"
    held.finish("stopped")
    assert (held.shown()["status"], held.shown()["values"]) == ("completed", {"loss": 0.05, "accuracy": 0.9})
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "target_reached"
    assert [one["id"] for one in service.get(f"/v1/experiments/{name}/best")["items"]] == [held.trial]


def test_the_table_names_each_column_once(service: Api) -> None:
    space = {one: {"type": "float", "low": 0, "high": 1} for one in ("step", "number", "loss", "lr")}
    name = service.create(space=space, objectives=TWO[:1])["name"]
    params = ran(service, name, loss=0.5)["params"]
    [row] = csv.DictReader(io.StringIO(service.http.get(f"/v1/experiments/{name}/trials?format=csv").text))
    assert (row["step"], row["number"], row["loss"]) == ("1", "0", "0.5")
    assert {one: float(row[one]) for one in ("params.step", "params.number", "params.loss", "lr")} == {
        ("lr" if one == "lr" else f"params.{one}"): value for one, value in params.items()
    }


def test_the_table_has_a_column_for_each_objective_and_constraint(service: Api) -> None:
    name = service.create(objectives=TWO, constraints=SMALL)["name"]
    ran(service, name, loss=0.5, accuracy=1, size=11)
    service.ask(name)
    text = service.http.get(f"/v1/experiments/{name}/trials?format=csv").text
    first, second = csv.DictReader(io.StringIO(text))
    assert [first[column] for column in ("loss", "accuracy", "size", "feasible")] == ["0.5", "1.0", "11.0", "False"]
    assert [second[column] for column in ("loss", "accuracy", "size", "feasible")] == [""] * 4


def test_the_table_has_what_each_trial_cost_and_where_its_params_came_from(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.5}])["name"]
    held = service.ask(name)
    assert held
    held.fail()
    [row] = csv.DictReader(io.StringIO(service.http.get(f"/v1/experiments/{name}/trials?format=csv").text))
    assert (row["source"], row["failure_kind"], row["attempt_count"]) == ("user", "user_error", "1")
    assert float(row["worker_seconds"]) >= 0
    assert (row["gpu_seconds"], "seed" in row) == ("0.0", False)


def test_the_table_tells_confirmations_from_the_trials_that_they_run_again(service: Api) -> None:
    limits = {"max_trials": 5, "parallelism": 1}
    name = service.create(objectives=TWO[:1], confirm={"top": 1, "seeds": 2}, limits=limits)["name"]
    for loss in (0.5, 0.2, 0.3, 0.2, 0.2):
        ran(service, name, loss=loss)
    rows = list(csv.DictReader(io.StringIO(service.http.get(f"/v1/experiments/{name}/trials?format=csv").text)))
    assert [row["confirms"] for row in rows] == ["", "", "", "1", "1"]
    assert len({row["seed"] for row in rows[2:]}) == 3


def test_a_spreadsheet_runs_no_cell_of_the_table(service: Api) -> None:
    harmful = ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1"]
    harmless = ["-5", "+1.5e-3", "adam", "'quoted'", "a=1"]
    choices = {
        "=x": {"type": "categorical", "choices": [*harmful, *harmless]},
        "y": {"type": "float", "low": -2.0, "high": 2.0},
    }
    enqueue = [{"=x": choice, "y": -1.5} for choice in (*harmful, *harmless)]
    name = service.create(space=choices, enqueue=enqueue, limits={"max_trials": len(enqueue)})["name"]
    text = service.http.get(f"/v1/experiments/{name}/trials?format=csv&limit=100").text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["'=x"] for row in rows] == [*(f"'{choice}" for choice in harmful), *harmless]
    assert {row["y"] for row in rows} == {"-1.5"}


def test_the_list_is_sorted_by_the_first_objective(service: Api) -> None:
    name = service.create(objectives=TWO)["name"]
    for loss in (3, 1, 2):
        ran(service, name, loss=loss, accuracy=0)
    shown = service.get(f"/v1/experiments/{name}/trials?sort=value")["items"]
    assert [one["values"]["loss"] for one in shown] == [1, 2, 3]


def test_events_have_all_values_and_their_feasibility(service: Api) -> None:
    name = service.create(objectives=TWO, constraints=SMALL)["name"]
    ran(service, name, loss=0.5, accuracy=1, size=11)
    [end] = [event["data"] for event in service.events(name) if event["kind"] == "trial.completed"]
    assert (end["values"], end["feasible"]) == ({"loss": 0.5, "accuracy": 1.0}, False)
    assert end["value"] is None


def test_the_values_of_a_lost_attempt_stay(service: Api) -> None:
    name = service.create(objectives=TWO)["name"]
    first = service.ask(name)
    assert first
    first.report(loss=0.5, accuracy=0.5)
    first.fail("lost", "the node is gone")
    again = service.ask(name)
    assert again
    again.report(loss=0.1, accuracy=0.9)
    again.finish()
    assert again.shown()["values"] == {"loss": 0.5, "accuracy": 0.5}, "the first attempt at a step decides its values"


def test_mistakes_in_objectives_and_constraints_are_reported(service: Api) -> None:
    mistakes = refused(
        service,
        objectives=[*TWO, TWO[0]],
        constraints=[{"metric": "size"}, {"metric": "loss", "min": 2, "max": 1}],
    )
    assert "needs a bound" in mistakes["constraints.0"]
    assert "at least 2 and at most 1" in mistakes["constraints.1"]
    assert "appears twice" in mistakes["objectives.2.metric"]
    assert "max and min in one" in refused(service, constraints=[*SMALL, *SMALL])["constraints.1.metric"]
    assert "objectives" in refused(service, objectives=[TWO[0] | {"metric": str(number)} for number in range(9)])


def test_the_search_gets_all_objectives_and_constraints(service: Api) -> None:
    """The sampler uses both, and must accept trials of every kind."""
    limits = {"max_trials": 12, "parallelism": 2}
    search = {"sampler": "tpe", "seed": 1, "options": {"n_startup_trials": 2}}
    name = service.create(objectives=TWO, constraints=SMALL, search=search, limits=limits)["name"]
    for number in range(12):
        held = service.ask(name)
        assert held
        lr = held.assignment["params"]["lr"]
        held.report(**({"loss": lr} if number == 5 else {"loss": lr, "accuracy": 1 - lr}), size=number)
        held.finish()
    counts = service.get(f"/v1/experiments/{name}")["counts"]
    assert (counts["completed"], counts["failed"]) == (11, 1)


def test_importance_ranks_the_parameter_that_mattered_first(service: Api) -> None:
    space = {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "idle": {"type": "float", "low": 0.0, "high": 1.0},
    }
    name = service.create(space=space, objectives=TWO, limits={"max_trials": 40, "parallelism": 1})["name"]
    path = f"/v1/experiments/{name}/importance"
    early = service.get(path)
    assert (early["parameters"], early["trial_count"], early["used_count"]) == ({}, 0, 0)
    assert "at least 10" in early["reason"]
    held = service.ask(name)
    while held:
        params = held.assignment["params"]
        held.report(loss=params["lr"], accuracy=params["idle"])
        following = held.finish(next=True)["next"]
        held = Held(service, following) if following else None
    for evaluator in ("ped_anova", "fanova"):
        by_loss = service.get(path, params={"evaluator": evaluator})
        by_accuracy = service.get(path, params={"evaluator": evaluator, "metric": "accuracy"})
        assert next(iter(by_loss["parameters"])) == "lr"
        assert next(iter(by_accuracy["parameters"])) == "idle"
        assert sum(by_loss["parameters"].values()) == pytest.approx(1)
        assert (by_loss["metric"], by_loss["trial_count"], by_loss["used_count"]) == ("loss", 40, 40)


def test_importance_of_an_unknown_metric_names_the_objectives(service: Api) -> None:
    name = service.create(objectives=TWO)["name"]
    problem = service.get(f"/v1/experiments/{name}/importance", 422, params={"metric": "speed"})
    assert "'loss', 'accuracy'" in problem["detail"]
    service.get(f"/v1/experiments/{name}/importance", 422, params={"evaluator": "guess"})
    service.get("/v1/experiments/nowhere/importance", 404)


def test_a_constraint_on_the_only_objective_counts(service: Api) -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.95}]
    name = service.create(objectives=objectives, constraints=[{"metric": "accuracy", "min": 0.3}])["name"]
    for value in (0.2, 0.5):
        held = service.ask(name)
        assert held
        held.report(accuracy=value)
        held.finish()
        assert held.shown()["feasible"] is (value > 0.3)
    assert service.get(f"/v1/experiments/{name}/best")["value"] == 0.5
    held = service.ask(name)
    assert held
    assert held.report(accuracy=0.96)["decision"] == "stop"
    held.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "target_reached"


@pytest.mark.parametrize("how", ["trial", "experiment"])
@pytest.mark.parametrize(("value", "kind"), [("NaN", "diverged"), ("none", "user_error")])
def test_a_trial_that_is_to_stop_fails_by_its_last_report(service: Api, how: str, value: str, kind: str) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.9, checkpoint="/a/1")
    service.post(f"/v1/trials/{held.trial}/stop" if how == "trial" else f"/v1/experiments/{name}/stop")
    held.report(accuracy=value, checkpoint="/a/2")
    held.finish("stopped")
    shown = held.shown()
    assert (shown["status"], shown["failure_kind"]) == ("failed", kind)
    service.get(f"/v1/experiments/{name}/best", 404)


def test_a_report_that_diverges_reaches_no_target(service: Api) -> None:
    objectives = [
        {"metric": "accuracy", "direction": "maximize", "target": 0.9},
        {"metric": "loss", "direction": "minimize"},
    ]
    name = service.create(objectives=objectives)["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.5, loss=1)
    held.report(accuracy=0.95, loss="NaN")
    held.finish("stopped")
    shown = service.get(f"/v1/experiments/{name}")
    assert (held.shown()["failure_kind"], shown["end_reason"], shown["status"]) == ("diverged", None, "running")
