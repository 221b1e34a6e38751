"""Another program, such as a proxy, answers at MLflow's address. MLflow's client takes `{}` for an answer of MLflow."""

import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import requests

from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import MirrorRow, MirrorRunRow

pytestmark = pytest.mark.slow
SEND = requests.Session.request
API = "/api/2.0/mlflow/"


class Proxy:
    """While it `answers`, it does so with its own body, after the number of calls that MLflow still gets."""

    def __init__(self) -> None:
        self.body, self.status = b"", 200
        self.lets_pass: int | None = None

    def answers(self, call: str) -> bool:
        if self.lets_pass is None or API not in call:
            return False
        self.lets_pass -= 1
        return self.lets_pass < 0

    def answer(self) -> requests.Response:
        response = requests.Response()
        response.status_code, response._content, response.encoding = self.status, self.body, "utf-8"
        response.headers["Content-Type"] = "text/html"
        return response


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    proxy = Proxy()

    def request(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        return proxy.answer() if proxy.answers(url) else SEND(session, method, url, **options)

    monkeypatch.setattr(requests.Session, "request", request)
    return proxy


@pytest.fixture(params=[b"", b"{}"], ids=["empty", "json"])
def body(request: pytest.FixtureRequest) -> bytes:
    return bytes(request.param)


@pytest.mark.parametrize("lets_pass", range(10))
def test_a_new_experiment_is_mirrored_after_another_program_has_answered(
    mirror: Any, begin_experiment: Callable[..., Any], proxy: Proxy, body: bytes, lets_pass: int
) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    proxy.body, proxy.lets_pass = body, lets_pass
    with pytest.raises(MlflowUnavailable, match="is PACELINE_MLFLOW_URI right, or is a proxy in between"):
        mirror.loop.run_once()
    proxy.lets_pass = None

    mirror.catch_up()

    runs = mirror.runs(history.name)
    assert {name: run.info.status for name, run in runs.items()} == {history.name: "RUNNING", "trial 00": "FINISHED"}
    assert runs[history.name].data.params["max_trials"] == "24"
    assert mirror.curve(runs["trial 00"], "val_accuracy") == [(1, 0.5)]


@pytest.mark.parametrize("lets_pass", range(7))
def test_a_trial_of_which_another_program_has_taken_writes_is_mirrored_whole(
    mirror: Any, begin_experiment: Callable[..., Any], proxy: Proxy, body: bytes, lets_pass: int, database: Database
) -> None:
    """The trial ends meanwhile."""
    history = begin_experiment()
    mirror.catch_up()
    history.completed_trial(0, 0.5)
    proxy.body, proxy.lets_pass = body, lets_pass
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    with database.read() as session:
        assert mirrors.lag(session) == 4
        assert session.query(MirrorRunRow).count() == 0
    proxy.lets_pass = None

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert (run.info.status, mirror.curve(run, "val_accuracy")) == ("FINISHED", [(1, 0.5)])
    assert run.data.params["lr"] == "0.1"


@pytest.mark.parametrize("missing", ["experiment", "run", "trial"])
def test_empty_ids_that_an_earlier_version_has_stored_heal_by_themselves(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, missing: str
) -> None:
    """They heal if the experiment has no new events, too."""
    history = begin_experiment()
    trial = history.completed_trial(0, 0.5)
    with database.write() as session:
        ids = ("" if missing == "experiment" else "7", "" if missing == "run" else "a run")
        row = MirrorRow(experiment_id=history.experiment_id, cursor=5, updated_at=history.now)
        row.mlflow_experiment_id, row.parent_run_id = ids
        session.add(row)
        run_id = "" if missing == "trial" else "another run"
        session.add(MirrorRunRow(trial_id=trial, generation=0, experiment_id=history.experiment_id, run_id=run_id))

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert (run.info.status, mirror.curve(run, "val_accuracy")) == ("FINISHED", [(1, 0.5)])


def test_a_page_is_shown_by_its_status_and_beginning(
    mirror: Any, begin_experiment: Callable[..., Any], proxy: Proxy, database: Database
) -> None:
    """The traceback, which the loop logs, shows it in this way, too."""
    history = begin_experiment()
    proxy.status, proxy.body, proxy.lets_pass = 404, b"<html>\n" + b"<!-- /login?session=hidden -->\n" * 30_000, 0

    with pytest.raises(MlflowUnavailable, match=r"404 != 200\. Response body: '<html> <!-- /login") as caught:
        mirror.loop.run_once()

    logged = "".join(traceback.format_exception(caught.value))
    assert len(logged) < 20_000
    assert "hidden" not in logged
    with database.read() as session:
        error = session.get_one(MirrorRow, history.experiment_id).error or ""
    assert len(error) < 600
    assert "\n" not in error


def test_an_experiment_that_mlflow_refuses_is_logged_once(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    proxy: Proxy,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin_experiment()
    passed = [0.0]
    mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=lambda: sum(passed))
    proxy.status, proxy.lets_pass = 400, 0
    proxy.body = json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": "no " * 30_000}).encode()
    with caplog.at_level(logging.WARNING, "service.background.mirroring"):
        for _ in range(3):
            mirror.loop.run_once()
            passed.append(60)

    [message] = caplog.messages
    assert "INVALID_PARAMETER_VALUE: no no" in message
    assert len(message) < 600
