"""Runs that are not the mirror's, or that have points, are neither deleted nor taken for those of a trial."""

from collections.abc import Callable
from typing import Any

import pytest

from service.operations.mirror_again import mirror_again
from service.store.sql.database import Database
from tests.mirror.mirrored_runs import forget

pytestmark = pytest.mark.slow

TRIALS = range(4)
CREATED_WITH = {"mlflow.source.name", "mlflow.source.type", "mlflow.user", "mlflow.parentRunId"} | {
    f"paceline.{name}" for name in ("trial_id", "trial", "origin")
}


def evaluation(mirror: Any, experiment: str, trial: str, **more: str) -> str:
    """A user's run, linked to the trial."""
    run = mirror.client.create_run(experiment, tags={"paceline.trial_id": trial, **more}, run_name=f"of {trial}")
    mirror.client.log_param(run.info.run_id, "dataset", "test")
    mirror.client.log_metric(run.info.run_id, "test_accuracy", 0.4)
    mirror.client.set_terminated(run.info.run_id)
    return str(run.info.run_id)


def test_a_users_runs_with_the_tag_of_a_trial_stay_as_they_are(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    trials = [history.completed_trial(number, 0.5) for number in TRIALS]
    mirror.catch_up()
    before = mirror.runs(history.name)
    experiment = before[history.name].info.experiment_id
    own = [evaluation(mirror, experiment, trial) for trial in trials]
    own.append(evaluation(mirror, experiment, trials[0], **{"mlflow.user": "paceline"}))
    mirror_again(database, [])

    mirror.catch_up()

    for run in [mirror.client.get_run(run_id) for run_id in own]:
        assert run.info.lifecycle_stage == "active"
        assert (run.data.params, run.data.metrics) == ({"dataset": "test"}, {"test_accuracy": 0.4})
    kept = [mirror.client.get_run(before[f"trial {number:02d}"].info.run_id) for number in TRIALS]
    assert {run.info.lifecycle_stage for run in kept} == {"active"}
    assert len(mirror.client.search_runs([experiment])) == len(before) + len(own)


def test_a_trial_whose_first_run_is_a_users_gets_one_of_its_own(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    parent = mirror.runs(history.name)[history.name]
    trial = history.trial(0, lr=0.1)
    evaluation(mirror, parent.info.experiment_id, trial)
    history.run(trial)

    mirror.catch_up()

    runs = mirror.runs(history.name)
    assert runs["trial 00"].data.params["lr"] == "0.1"
    assert runs[f"of {trial}"].data.params == {"dataset": "test"}


@pytest.mark.parametrize("change", ["param", "metric", "end", "tag"])
def test_a_second_run_of_a_trial_that_was_written_to_is_kept(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, change: str
) -> None:
    history = begin_experiment()
    history.run(history.trial(0, lr=0.1))
    mirror.catch_up()
    first = mirror.runs(history.name)["trial 00"]
    tags = {name: value for name, value in first.data.tags.items() if name in CREATED_WITH}
    second = mirror.client.create_run(first.info.experiment_id, tags=tags, run_name="trial 00").info.run_id
    client = mirror.client
    {
        "param": lambda: client.log_param(second, "lr", "0.1"),
        "metric": lambda: client.log_metric(second, "loss", 1),
        "end": lambda: client.set_terminated(second),
        "tag": lambda: client.set_tag(second, "mlflow.note.content", "mine"),
    }[change]()
    forget(database, history)

    mirror.catch_up()

    assert {client.get_run(run_id).info.lifecycle_stage for run_id in (first.info.run_id, second)} == {"active"}
