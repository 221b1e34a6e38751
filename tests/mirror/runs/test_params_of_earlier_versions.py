"""Runs whose params an earlier version has named: of names that MLflow takes for one, it wrote the last one's value."""

from collections.abc import Callable
from typing import Any

import pytest

from service.mirror import mlflow_names
from service.store.sql.database import Database
from service.store.tables import MirrorRow
from tests.mirror.mirrored_runs import forget

pytestmark = pytest.mark.slow


def plain_names(_experiment: Any, params: Any = ()) -> dict[str, str]:
    return {name: mlflow_names.name(name) for name in params}


@pytest.mark.parametrize("params", [{"x_": 1, "x%": 2}, {"x%": 2, "x_": 1}, {"x[a]": 1, "x(a)": 2}, {"lr%": 1, "s": 2}])
def test_a_run_of_an_earlier_version_stays_the_only_one(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, int],
) -> None:
    history = begin_experiment(space={name: {"type": "int", "low": 1, "high": 9} for name in params})
    trial = history.trial(0, **params)
    history.run(trial)
    with monkeypatch.context() as patch:
        patch.setattr("service.mirror.runs.new_runs.names_of_params", plain_names)
        mirror.catch_up()
    before = mirror.runs(history.name)["trial 00"].info.run_id
    forget(database, history)
    history.end(trial, "completed", 0.5)

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert (run.info.run_id, run.info.status) == (before, "FINISHED")
    assert {str(value) for value in params.values()} <= set(run.data.params.values()) | {"1"}
    with database.read() as session:
        assert session.get_one(MirrorRow, history.experiment_id).error is None
