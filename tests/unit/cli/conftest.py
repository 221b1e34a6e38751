"""The command line against a real service over HTTP. The tests themselves run the trials."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
import yaml

from service.app.application import create_app
from service.cli.main import main
from service.cli.terminal import console
from service.cli.upgraded_database import upgraded_database
from service.settings import Settings
from service.stack.ports import free_port

SPEC = {
    "name": "mine",
    "space": {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "trainer": {"entrypoint": "train:train_fn"},
    "limits": {"max_trials": 2},
}


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service for all tests of the command line; each test uses experiments of its own."""
    with service_in_a_thread(tmp_path_factory.mktemp("data")) as url:
        yield url


@contextmanager
def service_in_a_thread(data_dir: Path, **environment: str) -> Iterator[str]:
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(data_dir)} | environment)
    with upgraded_database(settings):
        pass
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 30
    try:
        while not server.started:
            assert time.monotonic() < deadline, "the service did not start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `paceline` with arguments, with PACELINE_URL set to the service."""
    monkeypatch.setenv("PACELINE_URL", url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(console.out, "width", 200)  # its width was read when it was created

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a training function and a spec with a unique name."""
    name = f"mine-{time.monotonic_ns()}"
    (tmp_path / "train.py").write_text("def train_fn(config):\n    pass\n")
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(SPEC | {"name": name}))
    return tmp_path


def submitted(run: Run, project: Path, *arguments: str) -> dict[str, object]:
    ended = run("submit", str(project / "experiment.yaml"), "--json", *arguments)
    assert ended.code == 0, ended.err
    experiment: dict[str, object] = json.loads(ended.out)
    return experiment


def external(run: Run, project: Path, **changes: object) -> dict[str, object]:
    """Submit an experiment whose trials the test runs."""
    spec = SPEC | {"name": f"external-{time.monotonic_ns()}", "trainer": {"kind": "external"}} | changes
    (project / "experiment.yaml").write_text(yaml.safe_dump(spec))
    return submitted(run, project)


def finish_one(url: str, experiment: str, end: dict[str, object], **saved: object) -> str:
    """Run a trial with one report, which may have a checkpoint, and this end; return its id."""
    asked = httpx.post(f"{url}/v1/experiments/{experiment}/ask").json()
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    trial = f"{url}/v1/trials/{asked['trial']}"
    reports = {"reports": [{"sequence": 0, "metrics": {"loss": 0.5}, **saved}]}
    httpx.post(f"{trial}/reports", json=reports, headers=lease).raise_for_status()
    httpx.post(f"{trial}/finish", json=end, headers=lease).raise_for_status()
    return str(asked["trial"])


def serve(data_dir: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "service.cli", "serve", *arguments],
        env=os.environ | {"PACELINE_DATA_DIR": str(data_dir)} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(data_dir: Path, **environment: str) -> Iterator[str]:
    """Run a service process; fail when it does not stop on SIGTERM."""
    port = free_port()
    process = serve(data_dir, "--port", str(port), **environment)
    try:
        deadline = time.monotonic() + 60
        while not _ready(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode in {0, -signal.SIGTERM}


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def open_to_others(directory: Path) -> set[Path]:
    paths = {path for path in (directory, *directory.rglob("*")) if not path.is_symlink()}
    return {path for path in paths if path.stat().st_mode & 0o077}
