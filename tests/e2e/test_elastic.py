"""Elastic worker groups, from the HTTP call to the workers and back: a node that comes, and one that is killed."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from service.stack.ports import accepts, free_port
from tests.e2e.conftest import COMMAND_SECONDS, PACELINE, Stack, until
from tests.processes import family_of, kill_all
from tests.ray_nodes import start_head, start_node

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1800)]

get = partial(httpx.get, timeout=COMMAND_SECONDS)
AGENT, ROOM = "elastic", "room"
"""The agent of the test's own cluster, and a resource that only this cluster has: 1 for each node and each worker."""
ONE_ROOM: dict[str, Any] = {"cpus": 1, "resources": {ROOM: 1}}

TRAIN = """
import tempfile
import time
from pathlib import Path

import ray.train

def train_fn(config):
    context, checkpoint, step = ray.train.get_context(), ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            step = int(Path(folder, "step").read_text())
    while not Path(config["done"]).exists():
        step += 1
        time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if context.get_world_rank() == 0:
                Path(folder, "step").write_text(str(step))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"epoch": step, "loss": 1 / step, "workers": context.get_world_size()}, checkpoint=saved)
"""
SPEC: dict[str, Any] = {
    "name": "resized",
    "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "early_stopping": {"rule": "asha", "min_step": 1},
    "step_metric": "epoch",
    "trainer": {
        "entrypoint": "train:train_fn",
        "scaling": {
            "num_workers": [1, 2],
            "elastic_resize_monitor_interval_s": 1,
            "resources_per_worker": {ROOM: 1},
        },
    },
    "limits": {"max_trials": 1},
    "failures": {"max_retries": 0},
}


@dataclass
class Cluster:
    """A Ray cluster of its own, each of whose nodes has room for one worker of the test, and an agent for it."""

    folder: Path
    port: int
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add_head(self) -> None:
        with self._log() as log:
            self.children.append(start_head(self.port, self.folder, env=own_environment(), log=log, **ONE_ROOM))

    @contextmanager
    def another_node(self) -> Iterator[Callable[[], None]]:
        """Yields what kills all processes of the node, as a power failure does."""
        with self._log() as log:
            node = start_node("--address", self.address, env=own_environment(), log=log, **ONE_ROOM)
        self.children.append(node)

        def kill() -> None:
            kill_all(family_of(node.pid))
            node.wait()

        yield kill

    def add_agent(self, url: str) -> None:
        command = [*PACELINE, "agent", "--name", AGENT, "--url", url, "--ray-address", self.address]
        with self._log() as log:
            agent = subprocess.Popen(command, stdout=log, stderr=log, env=own_environment(), start_new_session=True)
        self.children.append(agent)

    def end(self) -> None:
        for child in reversed(self.children):
            kill_all(family_of(child.pid))
            child.wait()

    def _log(self) -> IO[str]:
        return (self.folder / f"{len(self.children)}.log").open("w")


def own_environment() -> dict[str, str]:
    """The environment of the tests, without what says how to reach another cluster or service."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "RAY_"))}
    return env | {"RAY_AUTH_MODE": "disabled"}


@pytest.fixture
def cluster(stack: Stack) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="pe-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        found = Cluster(Path(folder), free_port("127.0.0.1"))
        try:
            found.add_head()
            until(lambda: accepts("127.0.0.1", found.port), "the head listens")
            found.add_agent(stack.url)
            until(lambda: AGENT in {one["name"] for one in get(f"{stack.url}/v1/agents").json()["items"]}, "the agent")
            yield found
        finally:
            found.end()


def only_trial(stack: Stack) -> dict[str, Any]:
    (listed,) = get(f"{stack.url}/v1/experiments/resized/trials").json()["items"]
    trial: dict[str, Any] = get(f"{stack.url}/v1/trials/{listed['id']}").json()
    return trial


def sizes(stack: Stack) -> list[int | None]:
    return [attempt["world_size"] for attempt in only_trial(stack)["attempts"]]


def reports(stack: Stack) -> list[dict[str, Any]]:
    answer = get(f"{stack.url}/v1/trials/{only_trial(stack)['id']}/reports", params={"limit": 1000}).json()
    found: list[dict[str, Any]] = answer["items"]
    return found


def trains_with(stack: Stack, workers: int) -> Callable[[], bool]:
    def found() -> bool:
        all_reports = reports(stack)
        return bool(all_reports) and all_reports[-1]["metrics"]["workers"] == workers

    return found


def test_a_trial_grows_onto_a_new_node_and_outlives_its_death(stack: Stack, cluster: Cluster, tmp_path: Path) -> None:
    done = tmp_path / "done"
    (tmp_path / "train.py").write_text(TRAIN)
    spec = SPEC | {"config": {"done": str(done)}}
    with (tmp_path / "train.py").open("rb") as code:
        created = httpx.post(
            f"{stack.url}/v1/experiments", files={"spec": json.dumps(spec).encode(), "code": ("train.py", code)}
        )
    assert created.status_code == 201, created.text
    until(lambda: bool(get(f"{stack.url}/v1/experiments/resized/trials").json()["items"]), "a trial")
    until(trains_with(stack, 1), "it starts with the one worker that fits")
    with cluster.another_node() as kill:
        until(trains_with(stack, 2), "it grows onto the new node")
        kill()
        until(trains_with(stack, 1), "it continues without the node")
    done.touch()
    until(lambda: stack.experiment("resized")["status"] == "completed", "it completes")

    trial = only_trial(stack)
    assert (trial["status"], trial["failure_kind"]) == ("completed", None)
    attempts = trial["attempts"]
    assert sizes(stack) == [1, 2, 1], attempts
    assert [one["outcome"] for one in attempts] == ["failed", "failed", "completed"]
    assert [(one["error"] or {}).get("kind") for one in attempts] == ["preempted", "preempted", None]
    assert attempts[0]["error"]["message"].startswith("the elastic group is resized from 1 to 2 workers")
    assert attempts[1]["error"]["message"].startswith("a node of the elastic group has left")

    curve = reports(stack)
    assert [one["step"] for one in curve] == list(range(1, len(curve) + 1)), "each step counts once"
    by_attempt = {
        attempt: {one["metrics"]["workers"] for one in curve if one["attempt"] == attempt} for attempt in (1, 2, 3)
    }
    assert by_attempt == {1: {1}, 2: {2}, 3: {1}}
    last_of_first = max(one["step"] for one in curve if one["attempt"] == 1)
    assert attempts[1]["resumed_step"] == last_of_first, "nothing is trained again after a resize"

    stack.wait_for_mirror()
    assert mlflow_sizes(stack, "resized") == [(one["resumed_step"] or 0, one["world_size"]) for one in attempts]


def mlflow_sizes(stack: Stack, name: str) -> list[tuple[int, int]]:
    """(step, workers) of the only trial, from MLflow's own API."""
    api = f"{stack.mlflow_url}/api/2.0/mlflow"
    search = {"max_results": 1, "filter": f"name = '{name}'"}
    (experiment,) = httpx.post(f"{api}/experiments/search", json=search).json()["experiments"]
    runs = httpx.post(f"{api}/runs/search", json={"experiment_ids": [experiment["experiment_id"]]}).json()["runs"]
    (run,) = (one for one in runs if any(tag["key"] == "mlflow.parentRunId" for tag in one["data"]["tags"]))
    metric = {"run_id": run["info"]["run_id"], "metric_key": "paceline/world_size"}
    points = get(f"{api}/metrics/get-history", params=metric).json()["metrics"]
    return sorted((int(one["step"]), int(one["value"])) for one in points)


def test_the_example_of_elastic_groups(stack: Stack) -> None:
    ended = stack.paceline("submit", "examples/elastic/experiment.yaml", "--watch")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^experiment +elastic completed \(max_trials\)$", ended.stdout, re.MULTILINE)
    trials = get(f"{stack.url}/v1/experiments/elastic/trials").json()["items"]
    assert [trial["reason"] for trial in trials if trial["status"] == "failed"] == []
    for listed in trials:
        attempts = get(f"{stack.url}/v1/trials/{listed['id']}").json()["attempts"]
        assert all(1 <= attempt["world_size"] <= 3 for attempt in attempts)
