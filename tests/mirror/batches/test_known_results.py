"""The mirror keeps what earlier events have shown, and reads it again after a start."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from service.background.mirroring import Mirroring
from service.mirror.batches import known_results
from service.mirror.batches.event_batches import load_batch
from service.mirror.batches.known_results import KnownResults
from service.mirror.runs.projection import BestSoFar
from service.store import mirrors
from service.store.sql.database import Database
from tests.mirror.conftest import SPEC, ExperimentHistory

pytestmark = pytest.mark.slow

OBJECTIVES = [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": "minimize"}]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Add the statement timeout for each time that all earlier events are read; None on SQLite."""
    found: list[str | None] = []
    count = mirrors.count_events

    def record(session: Session, *arguments: Any) -> int:
        is_sqlite = session.get_bind().dialect.name == "sqlite"
        found.append(None if is_sqlite else session.scalar(text("show statement_timeout")))
        return count(session, *arguments)

    monkeypatch.setattr(mirrors, "count_events", record)
    return found


def add_trial(history: Any, number: int, *values: float) -> None:
    history.end(history.trial(number, lr=0.1), "completed", values=[*values])


def test_earlier_events_are_read_once_after_a_start(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, readings: list[None]
) -> None:
    history = begin_experiment(objectives=OBJECTIVES)
    for number, values in enumerate([(5, 5), (4, 9), (6, 6), (9, 9), (3, 7)]):
        add_trial(history, number, *values)
        mirror.catch_up()
    assert len(readings) == 1
    mirror.loop = Mirroring(database, mirror.client.tracking_uri)
    for number, values in enumerate([(4, 4), (2, 8)], start=5):
        add_trial(history, number, *values)
        mirror.catch_up()

    assert len(readings) == 2
    parent = mirror.runs(history.name)[history.name]
    assert parent.data.tags["paceline.pareto_front"] == "4, 5, 6"
    assert mirror.curve(parent, "best_loss") == [(1, 5), (2, 4), (3, 4), (4, 4), (5, 3), (6, 3), (7, 2)]


def test_earlier_events_of_an_ended_experiment_are_read_once_while_the_mirror_catches_up(
    mirror: Any, begin_experiment: Callable[..., Any], readings: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.mirror.batches.event_batches.MAX_EVENTS", 3)
    history = begin_experiment(objectives=OBJECTIVES)
    for number in range(4):
        add_trial(history, number, 9 - number, 9 - number)
    history.finish("completed", "max_trials")

    mirror.catch_up()

    assert len(readings) == 1
    parent = mirror.runs(history.name)[history.name]
    assert (parent.info.status, parent.data.tags["paceline.pareto_front"]) == ("FINISHED", "3")
    history.append("experiment.changed", {"field": "tags.team", "before": "vision", "after": "audio"})
    mirror.catch_up()
    assert len(readings) == 2  # what an ended experiment has is not kept


def test_results_up_to_another_event_are_read_again(
    database: Database, begin_experiment: Callable[..., Any], readings: list[None]
) -> None:
    """Another service may have mirrored meanwhile."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    known = KnownResults()
    with database.read() as session:
        load_batch(session, history.experiment_id, known)
    with database.write() as session:
        mirrors.begin(session, history.experiment_id, "an experiment", "a run")
        mirrors.advance(session, history.experiment_id, 0, 5, {})
    history.completed_trial(1, 0.4)

    with database.read() as session:
        batch = load_batch(session, history.experiment_id, known)

    assert batch is not None
    assert [one.value for one in batch.given.best.values] == [0.5]
    assert len(readings) == 2


def test_the_statement_timeout_is_lifted_to_read_all_events(database_url: str, readings: list[str | None]) -> None:
    """Otherwise an experiment with too many of them would never be mirrored."""
    database = Database(database_url)
    history = ExperimentHistory(database, "x-00000000000a", SPEC)
    with database.read() as session:
        mirrors.count_events(session, history.experiment_id, 0, ())
        load_batch(session, history.experiment_id, KnownResults())
    database.close()

    before, while_reading = readings
    assert before != "0"
    assert while_reading == (None if "sqlite" in database_url else "0")


def test_results_of_the_experiments_mirrored_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_results, "MAX_EXPERIMENTS", 2)
    known = KnownResults()
    for experiment_id in ("x-a", "x-b", "x-a", "x-c"):
        known.keep(experiment_id, 7, BestSoFar(3))
    assert [known.at(experiment_id, 7) is not None for experiment_id in ("x-a", "x-b", "x-c")] == [True, False, True]
    known.forget("x-a")
    assert known.at("x-a", 7) is None
