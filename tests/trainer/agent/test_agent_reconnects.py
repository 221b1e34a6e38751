"""A Ray head dies with everything on it and restarts at the same address; the service is a real one."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.settings import Settings
from service.stack.ports import accepts, free_port
from service.store.sql.database import Database
from service.store.sql.schema import upgrade
from tests.conftest import Api, changed, running
from tests.trainer.conftest import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SECONDS = 240.0

CODE = """
import time
import ray.train

def train_fn(config):
    for epoch in range(10_000):
        ray.train.report({"accuracy": 0.5, "epoch": epoch})
        time.sleep(0.1)
"""


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'paceline.db'}"
    database = Database(url)
    upgrade(database)
    database.close()
    return url


@pytest.fixture
def ray_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="paceline-", dir="/tmp"))  # sockets need a short path
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def head(port: int, directory: Path) -> Iterator[None]:
    """Killed with all its processes at the end, as by a power failure."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port", str(port)]
    command += ["--temp-dir", str(directory), "--num-cpus", "2", "--include-dashboard", "false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: accepts("127.0.0.1", port), "Ray's head answers", SECONDS)
            yield
        finally:
            family = [process.pid, *(one.pid for one in psutil.Process(process.pid).children(recursive=True))]
            for pid in family:
                os.kill(pid, signal.SIGKILL)


@contextmanager
def agent(url: str, address: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "service.cli", "agent", "--url", url, "--name", "lone", "--ray-address", address]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, stdout=output) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def attempts(api: Api, experiment: str) -> list[dict[str, Any]]:
    trials = api.get(f"/v1/experiments/{experiment}/trials")["items"]
    found: list[dict[str, Any]] = api.get(f"/v1/trials/{trials[0]['id']}")["attempts"] if trials else []
    return found


def test_an_agent_survives_its_ray_head_and_its_trials_are_retried_on_the_next_one(
    settings: Settings, ray_directory: Path, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "agent.log"
    # The lease must not run out before the agent is back, however slowly that starts on a busy machine.
    settings = changed(settings, lease_seconds=SECONDS)
    with running(settings) as api, agent(str(api.http.base_url), f"127.0.0.1:{port}", log) as process:
        package = api.post("/v1/packages", 201, params={"filename": "train.py"}, content=CODE)
        trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": package["id"]}
        name = api.create(trainer=trainer, limits={"max_trials": 1}, step_metric="epoch")["name"]
        with head(port, ray_directory):
            until(lambda: [a for a in attempts(api, name) if a["last_report_at"]], "the first attempt reports", SECONDS)
        with head(port, ray_directory):
            first, _second = until(lambda: len(found := attempts(api, name)) > 1 and found, "a second attempt", SECONDS)
            assert first["error"]["kind"] == "lost"
            assert "no slot that runs it" in first["error"]["message"]
            until(lambda: attempts(api, name)[1]["last_report_at"], "the second attempt reports", SECONDS)
            process.terminate()
            assert process.wait(30) == 0
            # It gave back what it ran.
            assert attempts(api, name)[1]["error"]["kind"] == "preempted"
    assert "starting it again in" in log.read_text()
