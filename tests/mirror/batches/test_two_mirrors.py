"""PostgreSQL may close the connection with the mirror's lock. Then two services mirror, until the first one notices."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient
from sqlalchemy import text

from service.background.mirroring import Mirroring
from service.mirror.batches.unsettled_batches import UnsettledBatches
from service.mirror.mlflow_errors import MlflowUnavailable
from service.store import mirrors
from service.store.advisory_locks import LockLost
from service.store.sql.database import Database

TERMINATE_HOLDERS = (
    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' "
    "and database = (select oid from pg_database where datname = current_database())"
)


@pytest.fixture
def other(database: Database, mirror: Any) -> Mirroring:
    """SQLite has no locks, so that these two mirror as if each of them had PostgreSQL's."""
    return Mirroring(database, mirror.client.tracking_uri)


def before_the_call(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, interlude: Callable[[], Any]
) -> Callable[..., Any]:
    """Have the interlude run when the client's method is called for the `number`th time, before it does anything."""
    method, calls = getattr(MlflowClient, name), [0]

    def call(client: MlflowClient, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            interlude()
        return method(client, *arguments, **options)

    monkeypatch.setattr(MlflowClient, name, call)
    return call


@pytest.mark.slow
@pytest.mark.parametrize("creation", [1, 2], ids=["of-the-experiment", "of-the-trial"])
@pytest.mark.parametrize("has_noticed", [False, True], ids=["to-its-end", "until-it-notices"])
def test_of_runs_that_two_services_have_created_one_stays(
    mirror: Any,
    other: Mirroring,
    begin_experiment: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    creation: int,
    has_noticed: bool,
) -> None:
    """The slower one may have written to its runs."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)

    def mirror_meanwhile() -> None:
        other.run_once()
        if has_noticed:
            mirror.loop._lock.held = False

    with monkeypatch.context() as patch:
        before_the_call(patch, "create_run", creation, mirror_meanwhile)
        if has_noticed:
            with pytest.raises(LockLost):
                mirror.loop.run_once()
        else:
            mirror.loop.run_once()

    mirror.loop.run_once()
    other.run_once()
    runs = mirror.runs(history.name)  # fails where two have the same name
    assert {name: run.info.status for name, run in runs.items()} == {history.name: "RUNNING", "trial 00": "FINISHED"}
    assert mirror.curve(runs["trial 00"], "val_accuracy") == [(1, 0.5)]
    assert runs["trial 00"].data.tags["mlflow.parentRunId"] == runs[history.name].info.run_id
    assert mirror.loop._unanswered.due() == []


@pytest.mark.slow
def test_the_service_without_the_lock_deletes_its_runs_too(
    mirror: Any, other: Mirroring, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would stay as long as the other one mirrors."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    with monkeypatch.context() as patch:
        before_the_call(patch, "create_run", 2, other.run_once)
        patch.setattr(Mirroring, "_delete_late_runs", lambda _: None)
        mirror.loop.run_once()
    with monkeypatch.context() as patch:
        patch.setattr(Mirroring, "_mirror_all", lambda _: [])

        mirror.loop.run_once()

    assert set(mirror.runs(history.name)) == {history.name, "trial 00"}


@pytest.mark.slow
def test_what_a_slower_service_has_overwritten_is_written_again(
    mirror: Any, other: Mirroring, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    trial = history.trial(0, lr=0.1)
    history.append("trial.queued", {"reason": "the node is gone"}, trial)
    mirror.catch_up()
    history.append("trial.queued", {"reason": "the node is gone again"}, trial)

    def end_and_mirror() -> None:
        history.run(trial)
        history.end(trial, "completed", 0.5)
        other.run_once()

    with monkeypatch.context() as patch:
        before_the_call(patch, "update_run", 1, end_and_mirror)
        mirror.loop.run_once()
    assert mirror.runs(history.name)["trial 00"].info.status == "SCHEDULED"

    mirror.loop.run_once()
    other.run_once()

    assert mirror.runs(history.name)["trial 00"].info.status == "FINISHED"
    assert (mirror.loop.run_once(), other.run_once()) == (0, 0)


def test_a_run_that_is_stored_is_not_replaced(database: Database, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    trial = history.trial(0)
    with database.write() as session:
        assert mirrors.begin(session, history.experiment_id, "an experiment", "a run") == ("an experiment", "a run")
        assert mirrors.begin(session, history.experiment_id, "another", "another") == ("an experiment", "a run")
        assert mirrors.advance(session, history.experiment_id, 0, 2, {(trial, 0): "the first"})
        mirrors.rewind(session, history.experiment_id, 0)

    with database.write() as session:
        assert not mirrors.advance(session, history.experiment_id, 0, 2, {(trial, 0): "another"})

    with database.read() as session:
        assert mirrors.runs_of(session, {trial}) == {(trial, 0): "the first"}


def test_a_lost_lock_is_noticed(database_url: str) -> None:
    one, other = Database(database_url), Database(database_url)
    if one.is_sqlite:
        pytest.skip("SQLite has one service process")
    with mirrors.try_mirror_lock(one) as lock:
        lock.check()
        with other.write() as session:
            session.execute(text(TERMINATE_HOLDERS))
        with pytest.raises(LockLost):
            lock.check()
        with pytest.raises(LockLost):
            lock.check()
        with mirrors.try_mirror_lock(other) as second:
            assert second.held
    one.close()
    other.close()


def test_a_lock_that_cannot_be_checked_is_not_kept_by_the_pool(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL may have cancelled the statement alone, so that the connection has the lock."""
    one, other = Database(database_url), Database(database_url)
    if one.is_sqlite:
        pytest.skip("SQLite has one service process")
    with mirrors.try_mirror_lock(one) as lock:
        with monkeypatch.context() as patch:
            patch.setattr("service.store.advisory_locks.text", lambda _: text("select 1 / 0"))
            with pytest.raises(LockLost):
                lock.check()
        with mirrors.try_mirror_lock(other) as second:
            assert second.held
    one.close()
    other.close()


@pytest.mark.slow
def test_a_batch_that_this_service_cannot_write_is_left_to_the_other_one(
    mirror: Any, other: Mirroring, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    history.completed_trial(0, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(mirror.loop._writer, "_write_unless_deleted", Mock(side_effect=MlflowUnavailable("too large")))
        with pytest.raises(MlflowUnavailable):
            mirror.loop.run_once()
        other.run_once()
        assert mirror.loop.run_once() == 0
    other.run_once()
    assert mirror.runs(history.name)["trial 00"].info.status == "FINISHED"
    assert (mirror.loop.run_once(), other.run_once()) == (0, 0)


def test_what_is_known_of_a_deleted_experiment_is_dropped(database: Database) -> None:
    batches = UnsettledBatches(database)
    batches.began("deleted", 0)
    assert batches.rewind_passed() == set()
    assert batches._after == {}


@pytest.mark.slow
def test_a_creation_whose_run_is_stored_is_not_kept(
    mirror: Any, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first mirror of a large database creates so many that they would fill the memory until all are mirrored."""
    begin_experiment().completed_trial(0, 0.5)
    monkeypatch.setattr(mirror.loop, "_delete_late_runs", lambda: None)
    mirror.loop.run_once()
    assert [one for one in mirror.loop._unanswered.all() if one.run_key] == []
