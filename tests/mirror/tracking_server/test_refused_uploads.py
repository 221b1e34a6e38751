"""MLflow, or a proxy before it, refuses charts: users see which, why and what to do. All else is mirrored."""

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from service.background.charting import Charting
from service.mirror.charts.renderer_process import Rendered
from service.mirror.mlflow_errors import MlflowRefusedFiles
from service.mirror.runs.new_runs import EXPERIMENT_TAG
from service.mirror.tracking_server import tracking_client
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import MirrorRow, TrialRow
from tests.conftest import running
from tests.mirror.bad_connection import BadConnection, Call, answer
from tests.mirror.conftest import START

pytestmark = pytest.mark.slow
PAGE = "<html><head><title>413 Request Entity Too Large</title></head></html>"
TOO_LARGE = (
    "pictures/large.png (2000 bytes) was refused with 413 Request Entity Too Large; "
    "raise the proxy's limit for bodies, which is client_max_body_size in nginx"
)


class UploadedCharts:
    """The loop that uploads two charts of an experiment, and its clock, which the test moves."""

    def __init__(self, database: Database, address: str, history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn, self.passed, self.rendered = 0, [0.0], Rendered.ALL
        self._database, self._history = database, history
        self.loop = Charting(database, address, refresh=0, stopping=threading.Event(), clock=lambda: sum(self.passed))
        monkeypatch.setattr("service.background.charting.render_charts", self._draw)

    def _draw(self, _data: Any, directory: Path, _stopping: threading.Event) -> Rendered:
        self.drawn += 1
        for name, size in (("large.png", 2000), ("small.png", 10)):
            (directory / name).write_bytes(b"x" * size)
        return self.rendered

    @property
    def error(self) -> str | None:
        with self._database.read() as session:
            return session.get_one(MirrorRow, self._history.experiment_id).pictures_error


@pytest.fixture
def history(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, request: pytest.FixtureRequest
) -> Any:
    name = re.sub(r"\W+", "-", request.node.name).rstrip("-")  # a parameter's brackets are no part of a name
    history = begin_experiment(name=name, early_stopping={"rule": "none"})
    end_a_trial(history, database)
    mirror.catch_up()
    return history


def end_a_trial(history: Any, database: Database, number: int = 0) -> None:
    trial = history.completed_trial(number, 0.5)
    with database.write() as session:
        row = session.get_one(TrialRow, trial)
        row.value, row.changed_at_event = 0.5, 4 * (number + 1)


@pytest.fixture
def charts(mirror: Any, history: Any, database: Database, monkeypatch: pytest.MonkeyPatch) -> UploadedCharts:
    return UploadedCharts(database, mirror.client.tracking_uri, history, monkeypatch)


def refusing(name: str, *facts: Any) -> Callable[[Call], requests.Response | None]:
    return lambda call: answer(*facts) if call.path.endswith(name) else None


def test_a_chart_that_is_too_large_for_a_proxy_is_named_and_the_others_are_uploaded(
    mirror: Any, history: Any, charts: UploadedCharts, connection: BadConnection, caplog: pytest.LogCaptureFixture
) -> None:
    connection.foreign_answer = refusing("large.png", 413, "Request Entity Too Large", PAGE)
    assert charts.loop.run_once() == 0
    assert charts.error == TOO_LARGE
    run_id = mirror.runs(history.name)[history.name].info.run_id
    assert [one.path for one in mirror.client.list_artifacts(run_id, "pictures")] == ["pictures/small.png"]
    assert [TOO_LARGE in message for message in caplog.messages] == [True]


def test_refused_charts_are_tried_again_after_ten_minutes(charts: UploadedCharts, connection: BadConnection) -> None:
    """Drawing costs seconds of CPU time. Once they are uploaded, there is no error."""
    connection.foreign_answer = refusing("large.png", 413, "Request Entity Too Large", PAGE)
    charts.loop.run_once()
    charts.passed.append(599)
    charts.loop.run_once()
    assert charts.drawn == 1
    connection.foreign_answer = lambda _: None
    charts.passed.append(1)

    assert charts.loop.run_once() == 1

    assert (charts.drawn, charts.error) == (2, None)


def test_charts_that_were_not_all_finished_in_time_are_drawn_again_after_ten_minutes(
    history: Any, charts: UploadedCharts, database: Database
) -> None:
    charts.rendered = Rendered.SOME
    assert charts.loop.run_once() == 1
    end_a_trial(history, database, 1)
    charts.passed.append(599)
    assert charts.loop.run_once() == 0
    charts.passed.append(1)
    assert charts.loop.run_once() == 1
    assert (charts.drawn, charts.error) == (2, None)


def test_a_refused_chart_does_not_stop_the_mirror(
    mirror: Any, history: Any, charts: UploadedCharts, connection: BadConnection
) -> None:
    connection.foreign_answer = refusing(".png", 403, "Forbidden", '{"message": "read only"}')
    charts.loop.run_once()
    history.completed_trial(1, 0.6)

    mirror.catch_up()

    assert mirror.runs(history.name)["trial 01"].info.status == "FINISHED"
    assert charts.error == (
        'pictures/large.png (2000 bytes) was refused with 403 Forbidden ({"message": "read only"}); '
        "allow the service to write artifacts; 1 other file refused, too"
    )


def test_an_artifact_store_that_the_service_cannot_write_to_is_an_error_with_advice(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Clients of an MLflow without --serve-artifacts write the files themselves."""
    history = begin_experiment(early_stopping={"rule": "none"})
    (tmp_path / "no-folder").touch()
    mirror.client.create_experiment(
        history.name, f"file://{tmp_path}/no-folder/artifacts", {EXPERIMENT_TAG: history.experiment_id}
    )
    end_a_trial(history, database)
    mirror.catch_up()
    charts = UploadedCharts(database, mirror.client.tracking_uri, history, monkeypatch)
    charts.loop.run_once()
    assert re.fullmatch(
        r"pictures/large\.png \(2000 bytes\) cannot be written: .*Not a directory: .*no-folder.*; "
        r"start MLflow with --serve-artifacts, or let the service write there; 1 other file refused, too",
        str(charts.error),
    )


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (requests.ConnectionError("reset by http://user:hidden@bucket"), r"large\.png cannot be uploaded: reset by .*"),
        (OSError(errno.EMFILE, "Too many open files"), "the charts failed with OSError; .*"),
        (OSError(errno.ENOSPC, "No space left on device"), "the charts failed with OSError; .*"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "the charts failed with FileNotFoundError; .*"),
    ],
    ids=["connection", "too-many-files", "full-disk", "no-file"],
)
def test_a_failure_that_passes_is_no_refusal(
    charts: UploadedCharts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: OSError,
    shown: str,
) -> None:
    """It is tried again soon. No artifact store or proxy is blamed."""

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(tracking_client, "get_artifact_repository", lambda *_, **__: SimpleNamespace(log_artifact=fail))
    charts.loop.run_once()
    charts.passed.append(1)
    charts.loop.run_once()
    assert charts.drawn == 2
    assert re.fullmatch(rf"(pictures/)?{shown}", str(charts.error))
    assert "hidden" not in caplog.text + str(charts.error)


@pytest.mark.parametrize("status", [507, 520])
def test_a_server_error_of_an_upload_is_no_refusal(
    charts: UploadedCharts, connection: BadConnection, status: int
) -> None:
    connection.foreign_answer = refusing(".png", status, "Server Error", "")
    charts.loop.run_once()
    charts.passed.append(1)
    charts.loop.run_once()
    assert charts.drawn == 2
    assert re.match(rf"pictures/large\.png cannot be uploaded: {status} Server Error", str(charts.error))


def test_a_file_that_vanishes_while_it_is_refused_is_named(
    mirror: Any, history: Any, connection: BadConnection, tmp_path: Path
) -> None:
    (tmp_path / "large.png").write_bytes(b"x" * 2000)
    run_id = mirror.runs(history.name)[history.name].info.run_id

    def refuse(call: Call) -> requests.Response | None:
        if not call.path.endswith("large.png"):
            return None
        (tmp_path / "large.png").unlink()
        return answer(413, "Request Entity Too Large", PAGE)

    connection.foreign_answer = refuse
    with pytest.raises(MlflowRefusedFiles, match=re.escape(TOO_LARGE)):
        mirror.loop._connection.client.put_files(run_id, tmp_path, "pictures")


def test_an_experiment_shows_why_its_charts_are_missing(settings: Settings) -> None:
    with running(settings) as api:
        experiment = api.create()
        database = Database(str(settings.database_url))
        with database.write() as session:
            row = MirrorRow(experiment_id=experiment["id"], cursor=0, updated_at=START, pictures_error=TOO_LARGE)
            session.add(row)
        database.close()
        assert api.get(f"/v1/experiments/{experiment['name']}")["mlflow_error"] == TOO_LARGE
