"""The mirror's queries, on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from service.operations.mirror_again import mirror_again
from service.store import mirrors
from service.store.experiments import lock_experiment
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow, MirrorRunRow
from tests.concurrent_calls import is_waiting_for_a_lock
from tests.mirror.conftest import START
from tests.timeouts import wait_until

CONTENDERS = ("trial.completed",)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.mark.parametrize(("maximize", "expected"), [(True, 3), (False, 1)])
def test_the_best_end_is_found_among_the_events_so_far(
    database: Database, begin_experiment: Callable[..., Any], *, maximize: bool, expected: int
) -> None:
    history = begin_experiment()
    for number, value in [(7, 9.0), (1, 1e-7), (5, 10.0), (3, 10.0)]:
        history.completed_trial(number, value)
    history.end(history.trial(2), "completed", None)

    with database.read() as session:
        best = mirrors.best_end(session, history.experiment_id, 1000, CONTENDERS, 0, maximize=maximize)
        early = mirrors.best_end(session, history.experiment_id, 5, CONTENDERS, 0, maximize=maximize)

    assert best is not None
    assert best.data["number"] == expected
    assert early is not None
    assert early.data["number"] == 7


def test_an_infeasible_end_is_not_the_best(database: Database, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    for number, (value, facts) in enumerate([(9.0, {"feasible": False}), (5.0, {"feasible": True}), (1.0, {})]):
        history.end(history.trial(number), "completed", value, **facts)

    with database.read() as session:
        best = mirrors.best_end(session, history.experiment_id, 1000, CONTENDERS, 0, maximize=True)

    assert best is not None
    assert best.data["number"] == 1


def test_a_confirmation_is_not_the_best(database: Database, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    for number, (value, facts) in enumerate([(0.5, {}), (0.9, {"confirms": 0})]):
        history.end(history.trial(number), "completed", value, **facts)

    with database.read() as session:
        best = mirrors.best_end(session, history.experiment_id, 1000, CONTENDERS, 0, maximize=True)

    assert best is not None
    assert best.data["number"] == 0


@pytest.mark.parametrize(("most_events", "most_points", "expected"), [(3, 99, 3), (99, 8, 5), (99, 1, 4), (99, 99, 7)])
def test_the_next_events_end_at_either_limit(
    database: Database, begin_experiment: Callable[..., Any], most_events: int, most_points: int, expected: int
) -> None:
    history = begin_experiment()
    trial = history.trial(0)
    history.run(trial)
    history.report(trial, 1, **{f"layer_{number}": 0.5 for number in range(6)})
    loads = [{"metrics": {"cpu": 1.0, "gpu": 2.0}}]
    history.append("attempt.system_metrics", {"attempt": 1, "samples": loads}, trial)
    for step in (2, 3):
        history.report(trial, step, loss=0.5)

    with database.read() as session:
        events = mirrors.events_to_mirror(session, history.experiment_id, 0, most_events, most_points)

    assert [event.seq for event in events] == [*range(1, expected + 1)]


def test_an_experiment_is_behind_until_its_last_event_is_mirrored(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history, unseen = begin_experiment("x-00000000000a", name="a"), begin_experiment("x-00000000000b", name="b")
    history.completed_trial(0, 0.5)

    with database.write() as session:
        assert mirrors.lag(session) == 6
        mirrors.begin(session, history.experiment_id, "an experiment", "a run")
        mirrors.advance(session, history.experiment_id, 0, 5, {})
    with database.read() as session:
        assert mirrors.experiments_behind(session) == [unseen.experiment_id]
        assert mirrors.lag(session) == 1


def test_an_experiment_is_catching_up_unless_its_mirror_fails(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()

    def is_catching_up(since: timedelta = timedelta()) -> bool:
        """`since` is counted from the time of the mirror's last error."""
        with database.read() as session:
            mirror = session.get(MirrorRow, history.experiment_id)
            experiment = session.get_one(ExperimentRow, history.experiment_id)
            return mirrors.is_catching_up(session, experiment, (mirror.updated_at if mirror else START) + since)

    assert is_catching_up()
    with database.write() as session:
        mirrors.fail(session, history.experiment_id, "MLflow does not answer")
    assert not is_catching_up()
    assert is_catching_up(since=timedelta(microseconds=1))
    for cursor, expected in ((0, True), (1, False)):
        with database.write() as session:
            mirrors.begin(session, history.experiment_id, "an experiment", "a run")
            mirrors.advance(session, history.experiment_id, 0, cursor, {})
        assert is_catching_up() == expected


def test_of_two_batches_after_the_same_event_one_counts(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    for cursor in (5, 3):
        with database.write() as session:
            mirrors.begin(session, history.experiment_id, "an experiment", "a run")
            mirrors.advance(session, history.experiment_id, 0, cursor, {})

    with database.read() as session:
        assert mirrors.lag(session) == 0


def test_a_batch_that_was_being_sent_does_not_count_when_everything_is_to_be_mirrored_again(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    trial = history.completed_trial(0, 0.5)
    with database.write() as session:
        mirrors.begin(session, history.experiment_id, "an experiment", "a run")
        mirrors.advance(session, history.experiment_id, 0, 3, {})
    assert mirror_again(database, [history.name]) == 1
    with database.write() as session:
        mirrors.advance(session, history.experiment_id, 3, 5, {(trial, 0): "a run"})

    with database.read() as session:
        assert mirrors.lag(session) == 5
        assert mirrors.runs_of(session, {trial}) == {}


@pytest.mark.parametrize("named", [True, False])
def test_the_mirror_is_forgotten_before_its_runs(
    database: Database, begin_experiment: Callable[..., Any], *, named: bool
) -> None:
    """Its row is what a batch that is being stored has locked, so that the runs of the batch are deleted, too."""
    history = begin_experiment()
    statements: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement.lower())

    event.listen(database.engine, "before_cursor_execute", record)

    mirror_again(database, [history.name] if named else [])

    deleted = [statement.split()[2] for statement in statements if statement.startswith("delete from")]
    assert deleted == [MirrorRow.__tablename__, MirrorRunRow.__tablename__]


@pytest.mark.databases("postgresql")
def test_a_batch_with_a_new_run_is_no_deadlock_with_the_experiments_deletion(
    database: Database, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    trial = history.completed_trial(0, 0.5)
    with database.write() as session:
        mirrors.begin(session, history.experiment_id, "an experiment", "a run")

    def delete() -> None:
        with database.write() as session:
            session.delete(lock_experiment(session, history.experiment_id))

    def delete_after_first_lock(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "mirrors" in statement and not begun:
            begun.append(threads.submit(delete))
            wait_until(lambda: begun[0].done() or is_waiting_for_a_lock(database))

    begun: list[Future[None]] = []
    with ThreadPoolExecutor(1) as threads:
        event.listen(database.engine, "after_cursor_execute", delete_after_first_lock)
        with database.write() as storing:
            assert mirrors.advance(storing, history.experiment_id, 0, 5, {(trial, 0): "a run"})
        begun[0].result()
    with database.read() as afterwards:
        assert mirrors.existing(afterwards, [history.experiment_id]) == set()


def test_of_several_service_processes_one_at_a_time_mirrors(database_url: str) -> None:
    one, other = Database(database_url), Database(database_url)
    if one.is_sqlite:
        pytest.skip("SQLite has one service process")
    with mirrors.try_mirror_lock(one) as first, mirrors.try_mirror_lock(other) as second:
        assert (first.held, second.held) == (True, False)
    with mirrors.try_mirror_lock(other) as second:
        assert second.held
    one.close()
    other.close()
