"""The names of parameters are those of the whole space: a run has the names that the leaderboard shows."""

import json
from datetime import UTC, datetime
from typing import Any

from service.mirror.runs.leaderboard import leaderboard
from service.mirror.runs.new_runs import trial_run
from service.store.tables import ExperimentRow, TrialRow

SPACE: dict[str, Any] = {"kind": {}, "x[a]": {}, "x(a)": {}}
SPEC = {"name": "e", "space": SPACE, "objectives": [{"metric": "loss", "direction": "minimize"}]}


def experiment() -> ExperimentRow:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ExperimentRow(id="x-1", name="e", spec=SPEC, tags={}, status="running", created_at=at)


def names_in_run(**params: Any) -> set[str]:
    trial = TrialRow(id="t-0", experiment_id="x-1", number=0, params=params, origin="search")
    return set(trial_run(experiment(), trial, "parent").params)


def test_trials_of_each_branch_have_names_that_the_leaderboard_shows() -> None:
    columns = json.loads(leaderboard(experiment()))["selectedColumns"]
    one, other = names_in_run(kind="a", **{"x[a]": 1}), names_in_run(kind="b", **{"x(a)": 2})
    assert {f"params.`{name}`" for name in one | other} == {name for name in columns if name.startswith("params")}
    assert len(one | other) == len(SPACE)


def test_a_parameter_that_the_space_does_not_have_keeps_its_name() -> None:
    assert names_in_run(kind="a", gone=1) == {"kind", "gone"}
