"""What MLflow takes as names, numbers and texts, and how runs and the leaderboard are named there."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mlflow.entities import Run, RunData, RunInfo, RunTag

from service.mirror import mlflow_limits, mlflow_names
from service.mirror.runs.leaderboard import leaderboard, mlflow_url
from service.mirror.runs.new_runs import (
    GENERATION_TAG,
    TRIAL_NUMBER_TAG,
    TRIAL_TAG,
    USER,
    USER_TAG,
    experiment_run,
    trial_run,
)
from service.mirror.runs.own_runs import run_key
from service.mirror.runs.projection import RunKey
from service.mirror.runs.run_update import RunUpdate
from service.store.tables import MirrorRow
from tests.mirror.projected_rows import BEST, START, experiment, trial

MOST = 10


@pytest.mark.parametrize(
    ("most", "number", "expected"),
    [
        (None, 3, "trial 00003"),
        (24, 3, "trial 03"),
        (1000, 3, "trial 003"),
        (1001, 3, "trial 0003"),
        (10, 123, "trial 123"),
    ],
)
def test_names_of_trials_sort_as_their_numbers_do(most: int | None, number: int, expected: str) -> None:
    assert trial_run(experiment(limits={"max_trials": most}), trial(number), "p").name == expected


def test_any_number_of_trials_is_no_parameter_and_is_in_the_spec() -> None:
    new = experiment_run(experiment(limits={"max_trials": None, "max_seconds": 60}))
    assert new.params.keys() & {"max_trials", "max_seconds"} == {"max_seconds"}
    assert "limits:\n  max_trials: null\n  max_seconds: 60" in new.tags["paceline.spec"]


def test_the_leaderboard_sorts_the_best_first() -> None:
    assert '"orderByAsc": true' in leaderboard(experiment())
    assert '"orderByKey": "metrics.`loss`"' in leaderboard(experiment())


def test_the_leaderboard_sorts_by_the_best_report_where_that_counts() -> None:
    assert '"orderByKey": "metrics.`paceline/best_val/loss`"' in leaderboard(experiment(objectives=BEST))


def test_an_experiment_that_is_not_in_mlflow_yet_has_no_address_there() -> None:
    begun = MirrorRow(experiment_id="x-1", mlflow_experiment_id="7")
    assert mlflow_url(None, "http://here") is None
    assert mlflow_url(begun, None) is None
    assert str(mlflow_url(begun, "http://here/")).startswith("http://here/#/experiments/7/runs?")


@pytest.mark.slow
@given(st.text())
@example(".")
@example("..")
@example("a/../b")
def test_every_name_becomes_one_that_mlflow_accepts(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name  # noqa: PLC0415 - MLflow takes seconds to import

    _validate_metric_name(mlflow_names.name(name))


@pytest.mark.parametrize("name", ["val/accuracy", "loss", "top-5 accuracy", "a.b:c", "größe"])
def test_names_that_mlflow_accepts_are_unchanged(name: str) -> None:
    assert mlflow_names.name(name) == name


@pytest.mark.slow
@given(st.integers() | st.floats() | st.text() | st.none() | st.lists(st.integers()))
def test_a_reported_value_is_a_number_or_left_out(value: Any) -> None:
    assert isinstance(mlflow_limits.number(value), float | None)


@pytest.mark.parametrize(("value", "number"), [("0.5", 0.5), ("-inf", float("-inf")), ("1_0", None), ("five", None)])
def test_a_text_is_the_number_that_the_search_takes_it_for(value: str, number: float | None) -> None:
    assert mlflow_limits.number(value) == number


def test_a_number_beyond_all_floats_is_infinite() -> None:
    assert mlflow_limits.number(-(10**400)) == float("-inf")


@pytest.mark.parametrize(
    "names", [("a[0]", "a(0)"), ("loss%", "loss_"), ("x" * 250 + "1", "x" * 250 + "2")], ids=["both", "one", "cut"]
)
def test_names_that_mlflow_would_confuse_stay_apart(names: tuple[str, str]) -> None:
    update = RunUpdate(START)
    update.add_metrics(dict.fromkeys(names, 1.0), START, 1)
    in_mlflow = list(mlflow_limits.texts(dict.fromkeys(names, 1)))

    assert [point.metric for point in update.metrics] == in_mlflow
    assert len(set(in_mlflow)) == 2
    assert all(mlflow_names.name(name) == name for name in in_mlflow)
    assert all(name in in_mlflow for name in names if mlflow_names.name(name) == name)


def test_a_changed_name_that_is_alone_has_no_hash() -> None:
    assert mlflow_limits.texts({"a[0]": 1, "b": 2}) == {"a_0_": "1", "b": "2"}


@pytest.mark.parametrize("generation", ["two", "", "-"])
def test_a_generation_that_a_user_has_edited_is_no_error(generation: str) -> None:
    tags = {USER_TAG: USER, TRIAL_TAG: "t", TRIAL_NUMBER_TAG: "1", GENERATION_TAG: generation}
    run = Run(
        RunInfo("r", "1", USER, "RUNNING", 0, None, "active"), RunData(tags=[RunTag(*tag) for tag in tags.items()])
    )

    assert run_key(run) == (None if generation else RunKey("t", 0))


def test_a_long_text_is_cut_and_ends_with_an_ellipsis() -> None:
    assert mlflow_limits.text("x" * MOST, MOST) == "x" * MOST
    assert mlflow_limits.text("x" * (MOST + 1), MOST) == "x" * (MOST - 1) + "…"
