"""A trial that continues with another trial's params has an MLflow run for each generation."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete

from service.mirror.runs.projection import ProjectionInput, RunKey, project
from service.mirror.runs.run_update import RunUpdate
from service.store.sql.database import Database
from service.store.tables import EventRow, ExperimentRow, GenerationRow, MirrorRow, MirrorRunRow, TrialRow
from tests.mirror.exploited_trials import SENTENCE, exploited

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 1, tzinfo=UTC)


def trial_with_generations(database: Database, history: Any) -> str:
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 1, val_accuracy=0.1)
    history.report(trial, 2, val_accuracy=0.2)
    for generation, lr in ((1, 0.5), (2, 0.4)):
        exploited(database, history, trial, generation, lr=lr)
        history.run(trial)
        history.report(trial, 2 * generation + 1, val_accuracy=0.6 + generation / 10)
    history.end(trial, "completed", 0.8)
    return str(trial)


def test_each_generation_has_its_params_and_its_part_of_the_curve(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    trial = trial_with_generations(database, history)

    mirror.catch_up()

    runs = mirror.runs(history.name)
    names = ["trial 00", "trial 00, generation 1", "trial 00, generation 2"]
    assert sorted(runs) == sorted([history.name, *names])
    first, second, third = (runs[name] for name in names)
    assert [run.data.params["lr"] for run in (first, second, third)] == ["0.1", "0.5", "0.4"]
    curves = [mirror.curve(run, "val_accuracy") for run in (first, second, third)]
    assert curves == [[(1, 0.1), (2, 0.2)], [(3, 0.7)], [(5, 0.8)]]
    assert [run.info.status for run in (first, second, third)] == ["FINISHED"] * 3
    assert first.data.tags["mlflow.note.content"] == "continues as generation 1 from trial 1's checkpoint at step 2"
    assert "paceline.generation" not in first.data.tags
    assert {run.data.tags["paceline.trial_id"] for run in (first, second, third)} == {trial}
    parent = runs[history.name]
    assert second.data.tags["mlflow.parentRunId"] == parent.info.run_id
    tags = {name.removeprefix("paceline."): value for name, value in second.data.tags.items()}
    assert (tags["generation"], tags["donor"], tags["milestone"]) == ("1", "1", "2")
    assert (tags["resumed_from"], tags["decision"], tags["decision.reason"]) == ("/donor", "exploit", SENTENCE)
    assert third.data.tags["paceline.status"] == "completed"
    assert (parent.data.tags["paceline.best_trial"], parent.data.tags["paceline.best_value"]) == ("0", "0.8")
    assert "- lr: `0.4`" in parent.data.tags["mlflow.note.content"]


def test_mirroring_again_from_the_start_duplicates_nothing(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    """As after a crash before the cursor and the runs were stored."""
    history = begin_experiment()
    trial_with_generations(database, history)
    mirror.catch_up()
    before = {name: run.info.run_id for name, run in mirror.runs(history.name).items()}
    with database.write() as session:
        session.execute(delete(MirrorRunRow))
        session.get_one(MirrorRow, history.experiment_id).cursor = 0
    mirror.catch_up()
    runs = mirror.runs(history.name)  # fails where two have the same name
    assert {name: run.info.run_id for name, run in runs.items()} == before
    assert mirror.curve(runs["trial 00, generation 1"], "val_accuracy") == [(3, 0.7)]


def test_batches_of_any_size_give_each_event_to_the_same_run(
    begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    trial_id = trial_with_generations(database, history)
    with database.read() as session:
        experiment, trial = session.get_one(ExperimentRow, history.experiment_id), session.get_one(TrialRow, trial_id)
        generations = session.query(GenerationRow).order_by(GenerationRow.number).all()
        events = session.query(EventRow).order_by(EventRow.seq).all()
    given = ProjectionInput(experiment, {trial_id: trial}, {trial_id: generations})

    def sent(size: int) -> dict[RunKey, list[Any]]:
        found: dict[RunKey, list[Any]] = {}
        for first in range(0, len(events), size):
            for run, update in project(given, events[first : first + size]).runs.items():
                found.setdefault(run, []).extend([*update.metrics, *([update.status] if update.ended_at else [])])
        return found

    assert sent(1) == sent(4) == sent(len(events))
    assert sorted(sent(1)) == [(trial_id, 0), (trial_id, 1), (trial_id, 2)]


def test_a_trial_that_is_not_exploited_yet_keeps_its_own_params() -> None:
    """Its generations are read after its row, so an exploit in between changes nothing."""
    experiment = ExperimentRow(
        id="x-1", name="e", spec={"name": "e", "objectives": []}, tags={}, status="running", created_at=START
    )
    trial = TrialRow(id="t-0", experiment_id="x-1", number=0, params={"lr": 0.5}, origin="search")
    rows = [
        GenerationRow(trial_id="t-0", number=0, params={"lr": 0.1}, first_attempt=1, began_at_event=0),
        GenerationRow(trial_id="t-0", number=1, params={"lr": 0.5}, first_attempt=2, began_at_event=9),
    ]
    given = ProjectionInput(experiment, {"t-0": trial}, {"t-0": rows})
    at = START + timedelta(seconds=1)
    running = EventRow(experiment_id="x-1", seq=3, kind="trial.running", trial_id="t-0", data={"attempt": 1}, at=at)
    [(run, update)] = project(given, [running]).runs.items()
    assert run == RunKey("t-0", 0)
    assert isinstance(update, RunUpdate)
    generation = given.generation(run)
    assert generation is not None
    assert generation.params == {"lr": 0.1}
