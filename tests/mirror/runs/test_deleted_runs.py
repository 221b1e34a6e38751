"""What a user deletes in MLflow does not hold up the mirror of the rest."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from mlflow import MlflowClient

from service.background.mirroring import Mirroring
from service.store.mirrors import lag
from service.store.sql.database import Database
from service.store.tables import MirrorRow, MirrorRunRow

pytestmark = pytest.mark.slow


class Clock:
    """The loop's clock, which the test moves."""

    def __init__(self) -> None:
        self.now = timedelta()

    def __call__(self) -> float:
        return self.now.total_seconds()


@pytest.fixture
def clock(mirror: Any, database: Database) -> Clock:
    clock = Clock()
    mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=clock)
    return clock


def two_trials(mirror: Any, history: Any) -> tuple[str, str]:
    """Two running trials, both in MLflow."""
    trials = history.trial(0, lr=0.1), history.trial(1, lr=0.2)
    for trial in trials:
        history.run(trial)
    mirror.catch_up()
    return trials


def delete(client: MlflowClient, run_id: str, _database: Database, _trial: str) -> None:
    client.delete_run(run_id)


def remove(_client: MlflowClient, _run_id: str, database: Database, trial: str) -> None:
    """As after `mlflow gc`: MLflow has no run of this id."""
    with database.write() as session:
        session.get_one(MirrorRunRow, (trial, 0)).run_id = uuid4().hex


@pytest.mark.parametrize(
    ("vanish", "reason"),
    [
        (delete, r"MLflow refused: the run \w+ is deleted"),
        (remove, r"MLflow has no run \w+; `paceline db mirror-again` .*"),
    ],
)
@pytest.mark.usefixtures("clock")
def test_a_run_that_a_user_deletes_is_left_out_and_the_others_go_on(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    vanish: Callable[..., None],
    reason: str,
) -> None:
    history = begin_experiment()
    first, second = two_trials(mirror, history)
    vanish(mirror.client, mirror.runs(history.name)["trial 00"].info.run_id, database, first)
    for trial in (first, second):
        history.report(trial, 1, val_accuracy=0.5)
    mirror.catch_up()
    asked: list[str] = []
    write = MlflowClient.log_batch

    def record(client: MlflowClient, run_id: str, *arguments: Any, **more: Any) -> None:
        asked.append(run_id)
        write(client, run_id, *arguments, **more)

    monkeypatch.setattr(MlflowClient, "log_batch", record)
    for trial in (first, second):
        history.report(trial, 2, val_accuracy=0.75)
        history.end(trial, "completed", 0.75)
    history.finish("completed", "max_trials")

    mirror.catch_up()

    runs = mirror.runs(history.name)
    run, parent = runs["trial 01"], runs[history.name]
    assert mirror.curve(run, "val_accuracy") == [(1, 0.5), (2, 0.75)]
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")
    assert set(asked) == {run.info.run_id, parent.info.run_id}
    with database.read() as session:
        assert lag(session) == 0
        assert session.get_one(MirrorRow, history.experiment_id).error is None
    [line] = caplog.messages
    assert re.fullmatch(f"the run of trial 0 is not mirrored: {reason}", line)


def test_a_run_that_is_restored_goes_on(mirror: Any, begin_experiment: Callable[..., Any], clock: Clock) -> None:
    history = begin_experiment()
    trial, _ = two_trials(mirror, history)
    run_id = mirror.runs(history.name)["trial 00"].info.run_id
    mirror.client.delete_run(run_id)
    history.report(trial, 1, val_accuracy=0.5)
    mirror.catch_up()
    mirror.client.restore_run(run_id)
    clock.now += timedelta(minutes=1)
    history.report(trial, 2, val_accuracy=0.75)

    mirror.catch_up()

    assert mirror.curve(mirror.runs(history.name)["trial 00"], "val_accuracy") == [(2, 0.75)]


@pytest.mark.parametrize("whole", [True, False], ids=["experiment", "parent"])
def test_an_experiment_that_is_restored_lacks_nothing(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    *,
    whole: bool,
) -> None:
    history = begin_experiment()
    trial, _ = two_trials(mirror, history)
    parent = mirror.runs(history.name)[history.name]
    client: MlflowClient = mirror.client
    if whole:
        client.delete_experiment(parent.info.experiment_id)
    else:
        client.delete_run(parent.info.run_id)
    history.report(trial, 1, val_accuracy=0.5)
    mirror.catch_up()
    with database.read() as session:
        error = session.get_one(MirrorRow, history.experiment_id).error
    assert error == f"MLflow refused: the run {parent.info.run_id} is deleted"
    assert "of trial 0" not in caplog.text  # its run waits, too
    if whole:
        client.restore_experiment(parent.info.experiment_id)
    else:
        client.restore_run(parent.info.run_id)
    clock.now += timedelta(seconds=1)

    mirror.catch_up()

    assert mirror.curve(mirror.runs(history.name)["trial 00"], "val_accuracy") == [(1, 0.5)]
