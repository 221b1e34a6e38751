"""A real MLflow server, and the events of an experiment as the service's operations write them."""

import contextlib
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient
from sqlalchemy.orm import Session

from service.background.mirroring import Mirroring
from service.domain.event_kinds import EXPERIMENT_MOVED, TRIAL_MOVED, EventKind
from service.domain.statuses import ExperimentStatus, TrialStatus
from service.stack.mlflow_command import MLFLOW_ENVIRONMENT, mlflow_server_command
from service.stack.ports import free_port
from service.store.events import append_event
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from service.store.tables import ExperimentRow, TrialRow
from tests.mirror.bad_connection import BadConnection

QUIET = MLFLOW_ENVIRONMENT | {"PYTHONWARNINGS": "ignore"}
START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "name": "digits",
    "space": {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
    "config": {"epochs": 4},
    "objectives": [{"metric": "val_accuracy", "direction": "maximize"}],
    "search": {"sampler": "tpe", "seed": 7},
    "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
    "trainer": {
        "kind": "torch",
        "entrypoint": "train:train_fn",
        "package": "sha256:" + "ab" * 32,
        "scaling": {"num_workers": 2, "use_gpu": False},
        "env": {"OMP_NUM_THREADS": "1"},
    },
    "limits": {"max_trials": 24, "parallelism": 2},
    "tags": {"team": "vision"},
}


class MlflowServer:
    """`mlflow server` on SQLite, with the same address after a restart."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()  # which no outgoing connection takes while the server is stopped
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                mlflow_server_command(self._directory, "127.0.0.1", self._port),
                cwd=self._directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **QUIET},
            )
        self._wait_until_ready()

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=60):
                return
            time.sleep(0.1)
        raise TimeoutError((self._directory / "server.log").read_text())


class ExperimentHistory:
    """The history of an experiment, one event a second."""

    def __init__(self, database: Database, experiment_id: str, spec: dict[str, Any]) -> None:
        self._database = database
        self.experiment_id, self.name = experiment_id, spec["name"]
        self.now = START
        row = ExperimentRow(
            id=experiment_id, name=spec["name"], spec=spec, tags=spec["tags"], status="running", created_at=START
        )
        with database.write() as session:
            session.add(row)
        self.append("experiment.created", {"name": spec["name"], "spec": spec})

    def append(self, kind: EventKind, data: dict[str, Any], trial_id: str | None = None) -> None:
        with self._database.write() as session:
            append_event(session, self._experiment(session), kind, data, at=self.now, trial_id=trial_id)
        self.now += timedelta(seconds=1)

    def trial(self, number: int, **params: Any) -> str:
        trial_id = f"t-{self.experiment_id[-4:]}{number:08x}"
        row = TrialRow(
            id=trial_id,
            experiment_id=self.experiment_id,
            number=number,
            params=params,
            origin="search",
            status="queued",
            created_at=self.now,
        )
        with self._database.write() as session:
            session.add(row)
        self.append("trial.created", {"number": number, "params": params, "origin": "search"}, trial_id)
        return trial_id

    def run(self, trial_id: str) -> None:
        self._move(trial_id, "running")
        self.append("trial.running", {"reason": None, "attempt": 1, "agent": "agent-1"}, trial_id)

    def report(self, trial_id: str, step: int, **metrics: Any) -> None:
        self.append("report", {"attempt": 1, "sequence": step, "step": step, "metrics": metrics}, trial_id)

    def end(
        self, trial_id: str, status: str, value: float | None = None, reason: str | None = None, **facts: Any
    ) -> None:
        number = self._move(trial_id, status)
        values = None if value is None else [value]
        data = {"number": number, "reason": reason, "values": values, "step": 3, **facts}
        self.append(TRIAL_MOVED[TrialStatus(status)], data, trial_id)

    def revive(self, trial_id: str) -> None:
        """The ended trial runs again, as after a retry or a resumed experiment."""
        with self._database.read() as session:
            ended_as = session.get_one(TrialRow, trial_id).status
        number = self._move(trial_id, "queued")
        self.append("trial.queued", {"number": number, "reason": "again", "ended_as": ended_as}, trial_id)

    def completed_trial(self, number: int, value: float) -> str:
        """Add a trial from start to completion; return its id."""
        trial_id = self.trial(number, lr=0.1)
        self.run(trial_id)
        self.report(trial_id, 1, val_accuracy=value)
        self.end(trial_id, "completed", value)
        return trial_id

    def finish(self, status: str, reason: str) -> None:
        with self._database.write() as session:
            experiment = self._experiment(session)
            experiment.status, experiment.end_reason, experiment.ended_at = status, reason, self.now
        self.append(EXPERIMENT_MOVED[ExperimentStatus(status)], {"reason": reason, "detail": None})

    def _experiment(self, session: Session) -> ExperimentRow:
        return session.get_one(ExperimentRow, self.experiment_id)

    def _move(self, trial_id: str, status: str) -> int:
        with self._database.write() as session:
            trial = session.get(TrialRow, trial_id)
            assert trial is not None
            trial.status = status
            return trial.number


class Mirror:
    """The mirroring loop, and an MLflow client that reads what it wrote."""

    def __init__(self, database: Database, uri: str) -> None:
        self.loop = Mirroring(database, uri)
        self.client = MlflowClient(tracking_uri=uri)

    def catch_up(self) -> int:
        count = 0
        while mirrored := self.loop.run_once():
            count += mirrored
        return count

    def runs(self, experiment_name: str) -> dict[str, Any]:
        """Return MLflow's runs by name; fail when two have the same name."""
        experiment = self.client.get_experiment_by_name(experiment_name)
        found = self.client.search_runs([experiment.experiment_id])
        runs = {run.info.run_name: run for run in found}
        assert len(runs) == len(found)
        return runs

    def curve(self, run: Any, metric: str) -> list[tuple[int, float]]:
        return sorted((point.step, point.value) for point in self.client.get_metric_history(run.info.run_id, metric))


@pytest.fixture(scope="session", autouse=True)
def patient_mlflow() -> Iterator[None]:
    """A server or a renderer that is slow because the machine is busy has not failed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
        patch.setattr("service.mirror.charts.renderer_process.TIMEOUT_SECONDS", 400)
        patch.setattr("service.mirror.tracking_server.call_retries.FIRST_PAUSE_SECONDS", 0.0)
        patch.setattr("service.mirror.tracking_server.call_retries.SLOW_SECONDS", 400.0)
        yield


@pytest.fixture(scope="package")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}")
    upgrade(database)
    yield database
    database.close()


@pytest.fixture
def begin_experiment(database: Database, request: pytest.FixtureRequest) -> Callable[..., ExperimentHistory]:
    """Return a function that begins an experiment, named after the test, since tests share one MLflow."""

    def begin(
        experiment_id: str = f"x-{abs(hash(request.node.nodeid)) % 16**12:012x}", **spec: Any
    ) -> ExperimentHistory:
        return ExperimentHistory(database, experiment_id, {**SPEC, "name": request.node.name[:90], **spec})

    return begin


@pytest.fixture
def mirror(database: Database, mlflow_server: MlflowServer) -> Mirror:
    return Mirror(database, mlflow_server.uri)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> BadConnection:
    connection, send = BadConnection(), requests.Session.request

    def request(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        return connection.send(lambda: send(session, method, url, **options), url, options)

    monkeypatch.setattr(requests.Session, "request", request)
    return connection


@pytest.fixture
def call_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The durations of calls: the sum is the time."""
    seconds = [0.0]
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.monotonic", lambda: sum(seconds))
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.SLOW_SECONDS", 1.0)
    return seconds
