"""A compose project of a test, with its own names, ports and volumes, and what tests ask of what runs in it."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from service.stack.ports import free_port

REPOSITORY = Path(__file__).parents[2]
DIGITS = REPOSITORY / "examples" / "digits"
UP_SECONDS, RUN_SECONDS, MIRROR_SECONDS, AGENT_SECONDS = 240, 1200, 90, 120


@dataclass
class Compose:
    """`files` are compose files; empty: those that compose reads by itself. `env` are their variables."""

    files: Sequence[str] = ()
    env: dict[str, str] = field(default_factory=dict)
    servers: Sequence[str] = ()
    """the services that have a health check"""

    def __post_init__(self) -> None:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        self._command = ["docker", "compose"] if plugin else ["docker-compose"]
        self.project = f"paceline-test-{uuid.uuid4().hex[:8]}"
        self.port, self.mlflow_port = free_port(), free_port()
        self.images = {"PACELINE_IMAGE": f"{self.project}:latest", "PACELINE_NODE_IMAGE": f"{self.project}-node:latest"}
        ports = {"PACELINE_PORT": str(self.port), "MLFLOW_PORT": str(self.mlflow_port)}
        self.env = {**os.environ, **ports, **self.images, **self.env}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, *arguments: str) -> str:
        files = [part for file in self.files for part in ("-f", file)]
        done = subprocess.run(
            [*self._command, "-p", self.project, *files, *arguments],
            cwd=REPOSITORY,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def containers(self, name: str) -> list[str]:
        return self("ps", "-q", name).split()

    def health(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """The health of these servers, or of all, by name; `healthy` if all of a server's containers are."""
        found = {}
        for name in names or self.servers:
            states = docker("inspect", "--format", "{{.State.Health.Status}}", *self.containers(name)).split()
            found[name] = states[0] if len(set(states)) == 1 else " ".join(states)
        return found

    def wait_until_healthy(self, *names: str) -> None:
        """These servers, or all."""
        healthy = dict.fromkeys(names or self.servers, "healthy")
        wait_until(lambda: self.health(names) == healthy, UP_SECONDS, lambda: f"{self.health()}\n{self.logs()}")

    def logs(self) -> str:
        return self("logs", "--tail", "100")

    @contextmanager
    def cut_off(self, name: str) -> Iterator[None]:
        """The first of its containers has no network."""
        container = self.containers(name)[0]
        of_each = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
        networks = docker("inspect", "--format", of_each, container).split()
        for network in networks:
            docker("network", "disconnect", network, container)
        try:
            yield
        finally:
            for network in networks:
                docker("network", "connect", "--alias", name, network, container)

    def left_behind(self) -> str:
        mine = f"label=com.docker.compose.project={self.project}"
        return (
            docker("ps", "--all", "--quiet", "--filter", mine)
            + docker("volume", "ls", "--quiet", "--filter", mine)
            + docker("network", "ls", "--quiet", "--filter", mine)
        )


@contextmanager
def composed(compose: Compose, earlier: dict[str, str] | None = None) -> Iterator[Compose]:
    """Builds it, starts it, with earlier images if they are given, and removes all of it at the end.

    Skips the test where there is no container engine.
    """
    skip_without_engine()
    images = [*compose.images.values(), *(earlier or {}).values()]
    try:
        compose("build")
        compose.env |= earlier or {}
        try:
            compose("up", "--no-build", "--detach")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{compose.logs()}") from error
        yield compose
    finally:
        compose("down", "--volumes", "--remove-orphans")
        for image in images:
            docker("image", "rm", "--no-prune", image)


def skip_without_engine() -> None:
    has_engine = shutil.which("docker") is not None
    if not has_engine or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine: set DOCKER_HOST to one")


class Experiment:
    """The digits example, as a caller outside of the stack sees it."""

    def __init__(self, url: str) -> None:
        self.created = create_digits(url)
        self.service, self.url = url, f"{url}/v1/experiments/{self.created['id']}"
        self._seen: dict[str, Any] = self.created

    def seen(self) -> dict[str, Any]:
        """The experiment; as it was last seen while no service answers."""
        with suppress(OSError):
            self._seen = get(self.url)
        return self._seen

    def finished(self) -> int:
        counts = self.seen()["counts"]
        return sum(counts.get(status, 0) for status in ("completed", "pruned"))

    def wait_for(self, count: int, logs: Callable[[], str]) -> None:
        wait_until(lambda: self.finished() >= count, RUN_SECONDS, logs)

    def limit(self, max_trials: int) -> None:
        change = json.dumps({"limits": {"max_trials": max_trials}})
        subprocess.run(["curl", "-fsS", "-X", "PATCH", "--json", change, self.url], capture_output=True, check=True)

    def limit_to_present(self) -> None:
        """Lets the experiment end with the trials that it has, and one more."""
        self.limit(sum(get(self.url)["counts"].values()) + 1)

    def ended(self, logs: Callable[[], str]) -> dict[str, Any]:
        """The experiment when it has ended, after all of its trials have run to an end once."""
        wait_until(lambda: self.seen().get("status") != "running", RUN_SECONDS, lambda: str(get(self.url)))
        ended: dict[str, Any] = get(self.url)
        assert ended["status"] == "completed", f"{ended}\n{logs()}"
        trials = get(f"{self.url}/trials?limit=1000")["items"]
        assert sorted(trial["number"] for trial in trials) == list(range(ended["spec"]["limits"]["max_trials"]))
        wrong = [trial for trial in trials if trial["status"] not in {"completed", "pruned"}]
        assert not wrong, json.dumps([get(f"{self.service}/v1/trials/{one['id']}") for one in wrong])
        assert get(f"{self.url}/best")
        return ended

    def assert_mirrored(self, mlflow_port: int, logs: Callable[[], str]) -> None:
        """Every trial has one run, with the service's value."""
        client = MlflowClient(tracking_uri=f"http://127.0.0.1:{mlflow_port}")
        wait_until(lambda: parent_status(client) == "FINISHED", MIRROR_SECONDS, logs)
        trials = get(f"{self.url}/trials?limit=1000")["items"]
        values = sorted(trial["values"]["val_accuracy"] for trial in trials if trial["status"] == "completed")
        mlflow_experiment = client.get_experiment_by_name("digits")
        runs = client.search_runs([mlflow_experiment.experiment_id], max_results=1000)
        children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
        assert len(children) == len(trials)
        mirrored = [run.data.metrics["val_accuracy"] for run in children]
        assert set(values) <= set(mirrored), (values, mirrored)


def create_digits(url: str) -> Any:
    code = f"code=@{DIGITS / 'train.py'}"
    spec = f"spec=@{DIGITS / 'experiment.yaml'}"
    command = ["curl", "-fsS", "-F", spec, "-F", code, f"{url}/v1/experiments"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def parent_status(client: MlflowClient) -> str | None:
    experiment = client.get_experiment_by_name("digits")
    runs = client.search_runs([experiment.experiment_id], "attributes.run_name = 'digits'") if experiment else []
    return runs[0].info.status if runs else None


def agent_seen(url: str, since: datetime) -> bool:
    agents = get(f"{url}/v1/agents")["items"]
    return any(datetime.fromisoformat(agent["last_seen_at"]) > since for agent in agents)


def log_since(container: str, since: datetime) -> str:
    command = ["docker", "logs", "--since", since.isoformat(), container]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def wait_until(fact: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(1)


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout
