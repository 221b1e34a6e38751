"""A trial that needs the whole cluster, among small trials that never end all at once."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import COMMAND_SECONDS, Stack, until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

get = partial(httpx.get, timeout=COMMAND_SECONDS)
TRAIN = """
import time
import ray.train

def train_fn(config):
    time.sleep(config["seconds"] * (1 + config["x"]))
    ray.train.report({"loss": config["x"]})
"""
SPEC: dict[str, Any] = {
    "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "search": {"sampler": "random"},
}


def submit(stack: Stack, folder: Path, name: str, workers: int, seconds: float, **fields: Any) -> None:
    (folder / "train.py").write_text(TRAIN)
    trainer = {"entrypoint": "train:train_fn", "scaling": {"num_workers": workers}}
    spec = SPEC | {"name": name, "trainer": trainer, "config": {"seconds": seconds}, **fields}
    (folder / "experiment.yaml").write_text(json.dumps(spec))
    submitted = stack.paceline("submit", str(folder / "experiment.yaml"))
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr


def test_a_gang_that_needs_the_whole_cluster_starts_while_small_trials_wait(stack: Stack, tmp_path: Path) -> None:
    agents = get(f"{stack.url}/v1/agents").json()["items"]
    cpus = max(int(node["total"]["CPU"]) for agent in agents for node in agent["nodes"])
    submit(stack, tmp_path, "small", 1, 0.5, limits={"max_trials": 10_000, "parallelism": cpus})
    until(lambda: stack.experiment("small")["counts"].get("completed", 0) >= 2 * cpus, "small trials use the cluster")

    submit(stack, tmp_path, "gang", cpus, 0.1, limits={"max_trials": 2}, priority=10)
    until(lambda: stack.experiment("gang")["status"] == "completed", "the gang has had its trials")

    shown = stack.experiment("gang")
    assert (shown["counts"]["completed"], shown["counts"]["failed"]) == (2, 0)
    done = stack.experiment("small")["counts"]["completed"]
    until(lambda: stack.experiment("small")["counts"]["completed"] > done, "the small trials go on")
    assert stack.paceline("cancel", "small").returncode == 0
    until(lambda: stack.experiment("small")["status"] == "stopped", "all small trials have ended")
