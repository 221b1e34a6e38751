"""An error of charts is shown no longer than it is true."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.background.charting import Charting
from service.background.mirroring import Mirroring
from service.mirror.charts.renderer_process import Rendered
from service.store import charts
from service.store.sql.database import Database
from service.store.tables import MirrorRow
from tests.mirror.conftest import START

pytestmark = pytest.mark.slow
ERROR = "pictures/large.png was refused"


@pytest.fixture
def history(begin_experiment: Callable[..., Any], database: Database) -> Any:
    """An experiment in MLflow, whose charts show everything, and were refused before."""
    history = begin_experiment()
    with database.write() as session:
        row = MirrorRow(experiment_id=history.experiment_id, cursor=1, parent_run_id="r", updated_at=START)
        row.pictured_event, row.pictured_at, row.pictures_error = 1, START, ERROR
        session.add(row)
    return history


@pytest.fixture
def charting(database: Database, monkeypatch: pytest.MonkeyPatch) -> Charting:
    monkeypatch.setattr("service.mirror.tracking_server.tracking_client.TrackingClient.check_run", lambda *_: None)
    monkeypatch.setattr("service.background.charting.render_charts", lambda *_: Rendered.NONE)
    return Charting(database, "http://127.0.0.1:9", refresh=0, stopping=threading.Event())


def error_of(database: Database, history: Any) -> str | None:
    with database.read() as session:
        return session.get_one(MirrorRow, history.experiment_id).pictures_error


def test_an_error_that_an_older_service_leaves_is_cleared(database: Database, history: Any, charting: Charting) -> None:
    """It draws the last charts without clearing the error, which it does not know."""
    assert charting.run_once() == 1
    assert error_of(database, history) is None


def test_a_service_that_has_lost_the_lock_does_not_hide_that_another_one_has_drawn(
    database: Database, history: Any, charting: Charting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_data: Any, _directory: Path, _stopping: threading.Event) -> Rendered:
        with database.write() as session:
            charts.note_drawn(session, history.experiment_id, 1, "r")
        raise RuntimeError("the renderer failed")

    monkeypatch.setattr("service.background.charting.render_charts", fail)
    assert charting.run_once() == 0
    assert error_of(database, history) is None


def test_charts_of_a_run_that_was_replaced_meanwhile_are_drawn_again(
    database: Database, history: Any, charting: Charting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_run(_data: Any, _directory: Path, _stopping: threading.Event) -> Rendered:
        with database.write() as session:
            session.get_one(MirrorRow, history.experiment_id).parent_run_id = "another"
        return Rendered.NONE

    monkeypatch.setattr("service.background.charting.render_charts", replace_run)
    charting.run_once()
    assert error_of(database, history) == ERROR  # so it is due


def test_a_service_that_draws_no_charts_clears_their_errors(
    database: Database, history: Any, mlflow_server: Any
) -> None:
    Mirroring(database, mlflow_server.uri, draws_charts=False).run_once()
    assert error_of(database, history) is None
