"""An objective has one name in MLflow, whatever trials report beside it: the leaderboard sorts by its curve."""

import json
from typing import Any

import pytest

from service.mirror.runs.leaderboard import leaderboard
from service.mirror.runs.new_runs import experiment_tags
from service.mirror.runs.projection import ProjectionInput, RunKey, project
from tests.mirror.projected_rows import event, experiment, trial

CLASHING = [("loss%", "loss_"), ("loss_", "loss%"), ("a[0]", "a(0)"), ("x" * 250 + "1", "x" * 250 + "2")]


def shown(objective: str, **reports: dict[str, float]) -> tuple[str, list[dict[str, float]]]:
    """The metric by which the leaderboard sorts, and each report's values in MLflow."""
    row = experiment(objectives=[{"metric": objective, "direction": "minimize"}])
    events = [event(step, "report", metrics=metrics, step=step) for step, metrics in enumerate(reports.values(), 1)]
    update = project(ProjectionInput(row, {"t-0": trial()}), events).runs[RunKey("t-0")]
    points: list[dict[str, float]] = [{} for _ in events]
    for point in update.metrics:
        points[point.step - 1][point.metric] = point.value
    key = json.loads(leaderboard(row))["orderByKey"]
    assert experiment_tags(row)["mlflow.experiment.primaryMetric.name"] == key[len("metrics.`") : -1]
    return key[len("metrics.`") : -1], points


@pytest.mark.parametrize(("objective", "other"), CLASHING)
def test_the_leaderboard_sorts_by_the_objective_beside_a_metric_of_nearly_the_same_name(
    objective: str, other: str
) -> None:
    key, [both] = shown(objective, together={objective: 1.0, other: 2.0})
    assert both.pop(key) == 1.0
    assert list(both.values()) == [2.0]


@pytest.mark.parametrize(("objective", "other"), CLASHING)
def test_an_objective_has_a_curve_of_its_own_if_the_other_metric_is_never_in_the_same_report(
    objective: str, other: str
) -> None:
    key, [own, others, both] = shown(
        objective, own={objective: 1.0}, others={other: 2.0}, both={objective: 3, other: 4}
    )
    assert (own, both[key]) == ({key: 1.0}, 3.0)
    assert key not in others
    assert both.keys() == {key, *others}


@pytest.mark.parametrize(("first", "second"), CLASHING)
def test_the_best_values_of_two_objectives_stay_apart(first: str, second: str) -> None:
    objectives: list[dict[str, Any]] = [{"metric": one, "direction": "minimize"} for one in (first, second)]
    row = experiment(objectives=objectives)
    ends = [
        event(1, "trial.completed", "t-0", number=0, values=[1.0, None]),
        event(2, "trial.completed", "t-1", number=1, values=[2.0, 3.0]),
    ]
    parent = project(ProjectionInput(row, {"t-0": trial(), "t-1": trial(1)}), ends).parent
    curves: dict[str, list[float]] = {}
    for point in parent.metrics:
        curves.setdefault(point.metric, []).append(point.value)
    assert list(curves.values()) == [[1.0, 1.0], [3.0]]
