"""A Ray head dies with everything on it and restarts at the same address; the service is a real one."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from service.stack.ports import accepts, free_port
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.conftest import Api, changed, running
from tests.processes import family_of, kill_all, left_alive
from tests.ray_nodes import start_head
from tests.trainer.conftest import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SECONDS = 240.0

TRAINER = {
    "kind": "command",
    "command": ["sh", "-c", "epoch=0; while epoch=$((epoch + 1)); do echo accuracy=0.5 epoch=$epoch; sleep 0.1; done"],
    "metrics": {"stdout": [r"accuracy=(?P<accuracy>\S+) epoch=(?P<epoch>\d+)"]},
}
"""It needs no torch, which takes each process seconds to import."""


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'paceline.db'}"
    database = Database(url)
    upgrade(database)
    database.close()
    return url


@pytest.fixture
def ray_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="paceline-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def head(port: int, directory: Path) -> Iterator[None]:
    """Killed with all its processes at the end, as by a power failure."""
    with start_head(port, directory, cpus=2) as process:
        try:
            until(lambda: accepts("127.0.0.1", port), "Ray's head answers")
            yield
        finally:
            family = family_of(process.pid)
            kill_all(family)
            assert not left_alive(family)  # until then the next head does not get the port


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
        name = api.create(trainer=TRAINER, limits={"max_trials": 1}, step_metric="epoch")["name"]
        with head(port, ray_directory):
            until(lambda: [a for a in attempts(api, name) if a["last_report_at"]], "the first attempt reports")
        with head(port, ray_directory):
            first, *_ = until(lambda: len(found := attempts(api, name)) > 1 and found, "a second attempt")
            assert first["error"]["kind"] == "lost"
            assert "that ran it is gone: its process was killed, or Ray was restarted" in first["error"]["message"]
            until(lambda: attempts(api, name)[-1]["last_report_at"], "the second attempt reports")
            process.terminate()
            assert process.wait(SECONDS) == 0
            # It gave back what it ran.
            assert attempts(api, name)[-1]["error"]["kind"] == "preempted"
    assert "starting it again in" in log.read_text()
