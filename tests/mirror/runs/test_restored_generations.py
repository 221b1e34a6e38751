"""After a restore, a trial gets a generation again, with other params. MLflow has the run of the first time."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete

from service.operations.mirror_again import mirror_again
from service.store.sql.database import Database
from service.store.tables import EventRow, ExperimentRow, GenerationRow, MirrorRow, MirrorRunRow, TrialRow
from tests.mirror.exploited_trials import exploited

pytestmark = pytest.mark.slow

NAME = "trial 00, generation 1"


def lost_generation(mirror: Any, history: Any, database: Database) -> str:
    """A generation that MLflow has and the restored database does not; return its trial."""
    trial = str(history.trial(0, lr=0.1))
    history.run(trial)
    history.report(trial, 1, val_accuracy=0.1)
    with database.read() as session:
        count = session.get_one(ExperimentRow, history.experiment_id).event_count
    exploited(database, history, trial, 1, lr=0.5)
    history.run(trial)
    history.report(trial, 3, val_accuracy=0.7)
    mirror.catch_up()
    restore(database, history, trial, count)
    return trial


def restore(database: Database, history: Any, trial: str, count: int) -> None:
    """Take the database back to a state with `count` events and without generations."""
    with database.write() as session:
        session.execute(delete(EventRow).where(EventRow.seq > count))
        session.execute(delete(GenerationRow))
        session.execute(delete(MirrorRunRow).where(MirrorRunRow.generation == 1))
        session.get_one(ExperimentRow, history.experiment_id).event_count = count
        session.get_one(MirrorRow, history.experiment_id).cursor = count
        session.get_one(TrialRow, trial).params = {"lr": 0.1}


def runs_of_generation_1(mirror: Any, history: Any) -> dict[str, Any]:
    """The runs by the learning rate."""
    experiment = mirror.client.get_experiment_by_name(history.name)
    found = mirror.client.search_runs([experiment.experiment_id], f"attributes.run_name = '{NAME}'")
    runs = {run.data.params["lr"]: run for run in found}
    assert len(runs) == len(found)
    return runs


@pytest.mark.parametrize("donor_changes", [False, True], ids=["params", "params-and-milestone"])
def test_a_generation_with_other_params_gets_a_run_of_its_own(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, *, donor_changes: bool
) -> None:
    history = begin_experiment()
    trial = lost_generation(mirror, history, database)
    exploited(database, history, trial, 1, lr=0.9)
    if donor_changes:
        with database.write() as session:
            session.get_one(GenerationRow, (trial, 1)).milestone = 5
    history.run(trial)
    history.report(trial, 3, val_accuracy=0.3)
    history.end(trial, "completed", 0.3)

    mirror.catch_up()

    runs = runs_of_generation_1(mirror, history)
    assert {lr: mirror.curve(run, "val_accuracy") for lr, run in runs.items()} == {"0.5": [(3, 0.7)], "0.9": [(3, 0.3)]}
    assert {lr: run.info.status for lr, run in runs.items()} == {"0.5": "KILLED", "0.9": "FINISHED"}
    assert runs["0.5"].data.tags["paceline.status"] == "unknown"
    mirror_again(database, [])
    mirror.catch_up()
    assert {run.info.run_id for run in runs_of_generation_1(mirror, history).values()} == {
        run.info.run_id for run in runs.values()
    }


def test_the_run_of_a_generation_that_the_restored_database_does_not_have_is_ended(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    lost_generation(mirror, history, database)
    mirror_again(database, [])

    mirror.catch_up()

    runs = mirror.runs(history.name)
    assert {name: run.info.status for name, run in runs.items()} == {
        history.name: "RUNNING",
        "trial 00": "RUNNING",
        NAME: "KILLED",
    }
