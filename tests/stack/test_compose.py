"""docker-compose.yml on a container engine: it starts healthy, runs digits, survives any kill, leaves nothing."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

REPOSITORY = Path(__file__).parents[2]
DIGITS = REPOSITORY / "examples" / "digits"
SERVERS = ("postgres", "mlflow", "service", "ray-head", "ray-worker", "agent")
# Each is killed once, the next when two more trials have ended.
VICTIMS = ("ray-worker", "service", "mlflow", "postgres", "agent", "ray-head")
# Of these once more, and a new container takes the place of the killed one.
RECREATED = ("agent",)
# Each is cut off from the network for longer than a lease.
CUT_OFF = ("service", "postgres", "ray-worker")
CUT_SECONDS = 45
UP_SECONDS, RUN_SECONDS, MIRROR_SECONDS, AGENT_SECONDS = 180, 1200, 60, 120

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(3600)]


class Compose:
    """A compose project with its own names, ports and volumes."""

    def __init__(self) -> None:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        self._command = ["docker", "compose"] if plugin else ["docker-compose"]
        self.project = f"paceline-test-{uuid.uuid4().hex[:8]}"
        self.port, self.mlflow_port = free_port(), free_port()
        ports = {"PACELINE_PORT": str(self.port), "MLFLOW_PORT": str(self.mlflow_port)}
        self._env = {**os.environ, **ports, "PACELINE_IMAGE": f"{self.project}:latest"}

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, "-p", self.project, *arguments],
            cwd=REPOSITORY,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def health(self) -> dict[str, str]:
        """Return each server's health by its name in the file."""
        found = {}
        for name in SERVERS:
            container = self("ps", "-q", name).split()[0]
            found[name] = docker("inspect", "--format", "{{.State.Health.Status}}", container).strip()
        return found

    @contextmanager
    def cut_off(self, name: str) -> Iterator[None]:
        container, network = self("ps", "-q", name).split()[0], f"{self.project}_default"
        docker("network", "disconnect", network, container)
        try:
            yield
        finally:
            docker("network", "connect", "--alias", name, network, container)

    def left_behind(self) -> str:
        mine = f"label=com.docker.compose.project={self.project}"
        return (
            docker("ps", "--all", "--quiet", "--filter", mine)
            + docker("volume", "ls", "--quiet", "--filter", mine)
            + docker("network", "ls", "--quiet", "--filter", mine)
        )


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no container engine: set DOCKER_HOST to one")
    compose = Compose()
    try:
        compose("up", "--build", "--detach")
        yield compose
    finally:
        compose("down", "--volumes", "--remove-orphans")
        docker("image", "rm", "--no-prune", f"{compose.project}:latest")


def test_the_stack_survives_kills_mirrors_to_mlflow_and_leaves_nothing_behind(compose: Compose) -> None:
    healthy = dict.fromkeys(SERVERS, "healthy")
    wait_until(lambda: compose.health() == healthy, UP_SECONDS, lambda: f"{compose.health()}\n{compose('logs')}")

    created = create_digits(compose.port)
    experiment = f"http://127.0.0.1:{compose.port}/v1/experiments/{created['id']}"
    for number, victim in enumerate((*VICTIMS, *RECREATED)):
        wait_until(lambda count=2 * number: finished(experiment) >= count, RUN_SECONDS, lambda: compose("logs"))
        compose("kill", victim)
        killed_at = datetime.now(UTC)
        how = ("--force-recreate", "--no-deps") if number >= len(VICTIMS) else ()
        compose("up", "--detach", "--no-build", *how, victim)
        if victim == "agent":
            wait_until(lambda at=killed_at: agent_seen(compose.port, at), AGENT_SECONDS, lambda: compose("logs"))
            assert "works under the name" not in log_since(compose, "agent", killed_at), "it had to wait for its name"
    for number, name in enumerate(CUT_OFF, len(VICTIMS) + len(RECREATED)):
        wait_until(lambda count=2 * number: finished(experiment) >= count, RUN_SECONDS, lambda: compose("logs"))
        with compose.cut_off(name):
            time.sleep(CUT_SECONDS)
    wait_until(lambda: seen(experiment).get("status") != "running", RUN_SECONDS, lambda: str(get(experiment)))
    ended = get(experiment)
    assert ended["status"] == "completed", f"{ended}\n{compose('logs', '--tail', '100')}"
    trials = get(f"{experiment}/trials")["items"]
    assert sorted(trial["number"] for trial in trials) == list(range(created["spec"]["limits"]["max_trials"]))
    wrong = [trial for trial in trials if trial["status"] not in {"completed", "pruned"}]
    assert not wrong, json.dumps([get(f"http://127.0.0.1:{compose.port}/v1/trials/{one['id']}") for one in wrong])
    assert get(f"{experiment}/best")

    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{compose.mlflow_port}")
    wait_until(lambda: parent_status(client) == "FINISHED", MIRROR_SECONDS, lambda: compose("logs", "service"))
    assert f":{compose.mlflow_port}/" in ended["mlflow_url"]

    compose("down", "--volumes")
    assert compose.left_behind() == ""


def create_digits(port: int) -> Any:
    address = f"http://127.0.0.1:{port}/v1/experiments"
    code = f"code=@{DIGITS / 'train.py'}"
    command = ["curl", "-fsS", "-F", f"spec=@{DIGITS / 'experiment.yaml'}", "-F", code, address]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def seen(experiment: str) -> dict[str, Any]:
    """Return the experiment; nothing while the service does not answer."""
    try:
        found: dict[str, Any] = get(experiment)
    except OSError:
        return {"status": "running", "counts": {}}
    return found


def agent_seen(port: int, since: datetime) -> bool:
    agents = get(f"http://127.0.0.1:{port}/v1/agents")["items"]
    return any(datetime.fromisoformat(agent["last_seen_at"]) > since for agent in agents)


def log_since(compose: Compose, name: str, since: datetime) -> str:
    container = compose("ps", "-q", name).split()[0]
    command = ["docker", "logs", "--since", since.isoformat(), container]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def finished(experiment: str) -> int:
    counts = seen(experiment)["counts"]
    return sum(counts.get(status, 0) for status in ("completed", "pruned"))


def parent_status(client: MlflowClient) -> str | None:
    experiment = client.get_experiment_by_name("digits")
    runs = client.search_runs([experiment.experiment_id], "attributes.run_name = 'digits'") if experiment else []
    return runs[0].info.status if runs else None


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def wait_until(fact: Any, seconds: float, otherwise: Any) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(1)


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
