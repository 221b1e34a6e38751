"""Answers with a body that MLflow never sends, in JSON too: the errors are the mirror's own, and stop no other work."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowRefused, MlflowUnavailable
from service.mirror.runs.new_runs import TRIAL_TAG, NewRun
from service.mirror.runs.run_update import MetricPoint, RunUpdate
from service.mirror.tracking_server.tracking_client import TrackingClient
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow

START = datetime(2026, 11, 1, tzinfo=UTC)
NEW = NewRun("trial 00", {TRIAL_TAG: "t-0"}, {}, {}, {})
SPEC = {"name": "e", "space": {"lr": {}}, "objectives": [{"metric": "loss", "direction": "minimize"}]}
EXPERIMENT = ExperimentRow(id="x-1", name="e", spec=SPEC, tags={}, status="running", created_at=START)
ENDED = RunUpdate(START, {"lr": "1"}, {"a": "b"}, [MetricPoint("loss", 1.0, START, 1)], "FINISHED", START)
ERRORS = (MlflowUnavailable, MlflowRefused)


class OddServer:
    """Answers each call with one body and status, or as `answers` says."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.answers: Callable[[str], bytes] = lambda _: self.body
        """By the body of the call."""

    def answer(self, method: str, url: str, options: Any) -> requests.Response:
        response = requests.Response()
        response.status_code, response._content, response.encoding = (
            self.status,
            self.answers(str(options.get("json"))),
            "utf-8",
        )
        response.url, response.request = url, requests.Request(method, url).prepare()
        return response


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> OddServer:
    server = OddServer()

    def request(_: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        return server.answer(method, url, options)

    monkeypatch.setattr(requests.Session, "request", request)
    return server


def calls(client: TrackingClient) -> dict[str, Callable[[], object]]:
    return {
        "ensure_experiment": lambda: client.ensure_experiment(EXPERIMENT),
        "ensure_run": lambda: client.ensure_run("1", NEW, START),
        "delete_duplicates": lambda: client.delete_duplicates("1", NEW, "r"),
        "unfinished_runs": lambda: client.unfinished_runs("1"),
        "write": lambda: client.write("r", ENDED),
        "write_status": lambda: client.write("r", RunUpdate(START, status="RUNNING")),
        "check_run": lambda: client.check_run("r"),
    }


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize(
    "body",
    [
        *[b"", b"<html>", b"null", b"[]", b"7", b"{}", b"\xff", b'{"a":' * 5000],
        *[b'{"run": []}', b'{"run": {"info": {"run_id": 7}}}', b'{"run": {"info": {"start_time": "soon"}}}'],
        *[b'{"runs": {}}', b'{"runs": [7]}', b'{"runs": [null]}', b'{"runs": [{}]}', b'{"experiment_id": 5}'],
        *[b'{"experiment": []}', b'{"experiment": {"tags": [{"key": 1}]}}', b'{"run_info": []}'],
        *[b'{"error_code": ["x"]}', b'{"error_code": 404}', b'{"message": null}'],
    ],
)
def test_every_call_fails_with_an_error_of_the_mirror_or_not_at_all(
    server: OddServer, status: int, body: bytes
) -> None:
    server.status, server.body = status, body
    others = {}
    for name, call in calls(TrackingClient("http://mlflow")).items():
        try:
            call()
        except ERRORS:
            continue
        except Exception as error:  # noqa: BLE001 - any other one is the fault
            others[name] = error
    assert others == {}


@pytest.mark.parametrize("body", [b"{}", b'{"run": {"info": {"run_id": "r"}}}', b'{"run": {"info": {"run_id": "s"}}}'])
def test_charts_go_nowhere_else_if_the_answer_does_not_say_where(
    server: OddServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    charts, here = tmp_path / "pictures", tmp_path / "here"
    charts.mkdir()
    here.mkdir()
    (charts / "a.png").write_bytes(b"a")
    monkeypatch.chdir(here)
    server.body = body
    with pytest.raises(MlflowUnavailable):
        TrackingClient("http://mlflow").put_files("r", charts, "pictures")
    assert list(here.rglob("*")) == []


def test_an_odd_answer_to_the_look_for_late_runs_of_one_trial_does_not_keep_it_from_the_others(
    server: OddServer, database: Database
) -> None:
    with database.write() as session:
        session.add(ExperimentRow(id="x-1", name="e", spec=SPEC, tags={}, status="running", created_at=START))
        session.add(
            MirrorRow(experiment_id="x-1", mlflow_experiment_id="1", parent_run_id="p", cursor=0, updated_at=START)
        )
    mirroring = Mirroring(database, "http://mlflow")
    for trial_id in ("t-0", "t-1"):
        new = NewRun("a trial", {TRIAL_TAG: trial_id}, {}, {}, {})
        mirroring._unanswered.add("x-1", "1", new)
        mirroring._unanswered.stored(new, "r")
    searched: list[str] = []

    def answer(asked: str) -> bytes:
        searched.append("t-0" if "t-0" in asked else "t-1")
        return b'{"runs": {}}' if "t-0" in asked else b"{}"

    server.answers = answer

    for _ in range(2):
        assert mirroring.run_once() == 0

    assert set(searched) == {"t-0", "t-1"}
