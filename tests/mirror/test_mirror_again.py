"""Everything can be mirrored again: into an empty MLflow, and into one that has it already."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.errors import NotFound
from service.operations.mirror_again import mirror_again
from service.store import mirrors
from service.store.mirrors import lag
from service.store.sql.database import Database
from service.store.tables import MirrorRow, MirrorRunRow, TrialRow
from tests.mirror.mirrored_runs import everything

pytestmark = pytest.mark.slow


def lose_everything(mirror: Any, database: Database, history: Any) -> None:
    """As at an empty server: it has no experiment of this name, and none of the runs."""
    mirror.client.rename_experiment(mirror.client.get_experiment_by_name(history.name).experiment_id, uuid4().hex)
    with database.write() as session:
        session.get_one(MirrorRow, history.experiment_id).parent_run_id = uuid4().hex


def facts(mirror: Any, history: Any) -> dict[str, Any]:
    """Everything that MLflow has, except for the ids of runs."""
    found = {name: [*one[1:]] for name, one in everything(mirror, history).items()}
    for _, _, _, tags, *_ in found.values():
        tags.pop("mlflow.parentRunId", None)
    return found


def test_an_empty_mlflow_is_filled_again(mirror: Any, begin_experiment: Callable[..., Any], database: Database) -> None:
    history, ended = begin_experiment(), begin_experiment("x-00000000000b", name="ended before")
    history.completed_trial(0, 0.5)
    ended.completed_trial(0, 0.5)
    ended.finish("completed", "max_trials")
    mirror.catch_up()
    before = [facts(mirror, one) for one in (history, ended)]
    for one in (history, ended):
        lose_everything(mirror, database, one)
    history.append("experiment.paused", {"reason": None})
    mirror.catch_up()
    with database.read() as session:
        error = str(session.get_one(MirrorRow, history.experiment_id).error)
    assert error.startswith("MLflow has no run ")
    assert error.endswith("; `paceline db mirror-again` has the service write everything again")

    assert mirror_again(database, []) == 2
    mirror.loop._backoff.succeeded(history.experiment_id)
    mirror.catch_up()

    after = [facts(mirror, one) for one in (history, ended)]
    assert after[0][history.name][3].pop("paceline.status") == "paused"
    assert after == before
    with database.read() as session:
        assert lag(session) == 0


def test_what_mlflow_has_already_stays_as_it_is(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history, other = begin_experiment(), begin_experiment("x-00000000000b", name="not named")
    history.completed_trial(0, 0.5)
    history.finish("completed", "max_trials")
    mirror.catch_up()
    before = everything(mirror, history)

    assert mirror_again(database, [history.name, history.experiment_id]) == 1

    assert mirror.catch_up() == 6
    assert everything(mirror, history) == before
    assert set(mirror.runs(other.name)) == {other.name}


def test_runs_of_trials_that_a_restored_database_does_not_have_are_ended(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    lost = ""
    for number in range(3):
        lost = history.trial(number, lr=0.1)
        history.run(lost)
    history.append("trial.queued", {"number": 2, "reason": "tried again"}, lost)
    mirror.catch_up()
    before = mirror.runs(history.name)
    parent = before[history.name]
    own = {"mlflow.parentRunId": parent.info.run_id}
    mirror.client.create_run(parent.info.experiment_id, tags=own, run_name="a user's own")
    for trial in (before["trial 01"], before["trial 02"]):
        with database.write() as session:
            session.delete(session.get_one(TrialRow, trial.data.tags["paceline.trial_id"]))
    mirror_again(database, [])

    mirror.catch_up()

    statuses = {name: run.info.status for name, run in mirror.runs(history.name).items()}
    unfinished = dict.fromkeys([history.name, "trial 00", "a user's own"], "RUNNING")
    assert statuses == unfinished | {"trial 01": "KILLED", "trial 02": "KILLED"}
    assert "no such trial" in mirror.runs(history.name)["trial 02"].data.tags["mlflow.note.content"]


def test_a_trials_run_that_a_user_has_deleted_stays_deleted(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    for number in range(2):
        history.completed_trial(number, 0.5)
    mirror.catch_up()
    run_id = mirror.runs(history.name)["trial 00"].info.run_id
    mirror.client.delete_run(run_id)
    mirror_again(database, [history.name])

    mirror.catch_up()

    assert set(mirror.runs(history.name)) == {history.name, "trial 01"}
    mirror.client.restore_run(run_id)
    mirror_again(database, [history.name])
    mirror.loop._writer._deleted_runs.succeeded(run_id)
    mirror.catch_up()
    assert mirror.runs(history.name)["trial 00"].info.run_id == run_id


def test_below_a_new_parent_run_are_the_runs_of_the_one_before(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    """Runs of trials that a restored database does not have are ended. Another experiment's stay as they are."""
    history, other = begin_experiment(), begin_experiment("x-00000000000b", name="beside a new parent")
    history.completed_trial(0, 0.5)
    lost, others = history.trial(1, lr=0.1), other.trial(0, lr=0.1)
    history.run(lost)
    other.run(others)
    mirror.catch_up()
    old = mirror.runs(history.name)[history.name].info.run_id
    mirror.client.delete_run(old)
    with database.write() as session:
        for trial in (lost, others):
            session.delete(session.get_one(TrialRow, trial))
    mirror_again(database, [history.name])
    history.completed_trial(2, 0.6)

    mirror.catch_up()

    runs = mirror.runs(history.name)
    parent = runs[history.name].info.run_id
    assert parent != old
    assert {runs[f"trial {number:02d}"].data.tags["mlflow.parentRunId"] for number in (0, 2)} == {parent}
    assert runs["trial 01"].info.status == "KILLED"
    assert mirror.runs(other.name)["trial 00"].info.status == "RUNNING"


def test_a_batch_that_is_being_stored_when_everything_is_to_be_mirrored_again_does_not_count(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, between the batch's read of the cursor and its write."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    advance = mirrors.advance

    def advance_too_late(session: Session, experiment_id: str, *arguments: Any) -> None:
        row = session.get_one(MirrorRow, experiment_id)
        session.connection().execute(delete(MirrorRow))
        advance(session, experiment_id, *arguments)
        del row  # kept until here, so that the session does not read it again

    with monkeypatch.context() as patch:
        patch.setattr(mirrors, "advance", advance_too_late)
        mirror.loop.run_once()

    with database.read() as session:
        assert lag(session) == 5
        assert session.scalars(select(MirrorRunRow)).all() == []
    mirror.catch_up()
    assert mirror.runs(history.name)["trial 00"].info.status == "FINISHED"
    with database.read() as session:
        assert session.get_one(MirrorRow, history.experiment_id).error is None


def test_an_unknown_experiment_is_not_mirrored_again(database: Database) -> None:
    with pytest.raises(NotFound, match="no experiment 'nothing'"):
        mirror_again(database, ["nothing"])
