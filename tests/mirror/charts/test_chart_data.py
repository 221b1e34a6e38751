"""What charts read of an experiment: few columns of its trials, since there may be hundreds of thousands."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from service.mirror.charts.chart_data import ChartData
from service.mirror.charts.chart_data_loader import chart_data, load_chart_rows
from service.runtime.caches.experiment_caches import spec_of
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MilestoneRow, TrialRow

MAXIMIZE = "maximize"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def statements(database: Database) -> list[str]:
    found: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *arguments: found.append(arguments[2]))
    return found


def loaded(database: Database, history: Any) -> ChartData:
    with database.read() as session:
        experiment = session.get_one(ExperimentRow, history.experiment_id)
        return chart_data(load_chart_rows(session, experiment, spec_of(experiment)))


def add(database: Database, history: Any, number: int, status: str, value: float | None, **columns: Any) -> str:
    trial_id = str(history.trial(number, lr=0.1 * (number + 1)))
    with database.write() as session:
        row = session.get_one(TrialRow, trial_id)
        row.status, row.value, row.last_step = status, value, 4
        for name, one in columns.items():
            setattr(row, name, one)
    return trial_id


def test_trials_are_shown_by_their_values(
    database: Database, begin_experiment: Callable[..., Any], statements: list[str]
) -> None:
    objectives = [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": MAXIMIZE}]
    history = begin_experiment(name="by-values", objectives=objectives, early_stopping={"rule": "none"})
    add(database, history, 0, "completed", 0.5, values={"size": 3}, violation=0.0)
    add(database, history, 1, "completed", 0.7, values={})
    add(database, history, 2, "stopped", 0.4, values={"size": 2}, stop_cause="user")
    add(database, history, 3, "failed", None, failure_kind="diverged")
    statements.clear()

    data = loaded(database, history)

    assert [(one.number, one.completed, one.values, one.score) for one in data.trials] == [
        (0, True, [0.5, 3], None),
        (1, True, None, None),
        (2, False, [0.4, 2], None),
    ]
    assert data.trials[1].params == {"lr": 0.2}
    assert not [one for one in statements if "trials.cost" in one or "trials.reason" in one]


def test_trials_are_shown_by_their_curve_scores_when_some_are_cut_short(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment(name="by-scores")
    values = [0.9, 0.5, 0.1, 0.7]
    for number, (status, value) in enumerate(zip(("completed", "pruned", "paused", "completed"), values, strict=True)):
        trial_id = add(database, history, number, status, value)
        reached = MilestoneRow(
            experiment_id=history.experiment_id, milestone=1, trial_id=trial_id, number=number, value=value
        )
        reached.change = number + 1
        with database.write() as session:
            session.add(reached)

    data = loaded(database, history)

    assert data.by_score
    assert [one.stopped_early for one in data.trials] == [False, True, True, False]
    scores = {one.number: one.score for one in data.trials}
    assert sorted(scores, key=lambda number: scores[number] or 0) == [2, 1, 3, 0]
