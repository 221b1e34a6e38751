"""`report: best` on a whole stack: the value, the kept checkpoint and MLflow, also after a worker was killed."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient

from tests.e2e.conftest import COMMAND_SECONDS, Stack

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

get = partial(httpx.get, timeout=COMMAND_SECONDS)
NAME, ACCURACIES, BEST_STEP = "overfitting", [0.5, 0.6, 0.9, 0.7, 0.4, 0.3], 3
TRAIN = """
import os
import signal
import tempfile
from pathlib import Path

import ray.train

def train_fn(config):
    checkpoint, done = ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            done = int(Path(folder, "step").read_text())
    for step, accuracy in list(enumerate(config["accuracies"], 1))[done:]:
        killed = Path(config["killed"])
        if step == config["killed_before"] and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"epoch": step, "accuracy": accuracy}, checkpoint=saved)
"""
SPEC: dict[str, Any] = {
    "name": NAME,
    "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "objectives": [{"metric": "accuracy", "direction": "maximize", "report": "best"}],
    "step_metric": "epoch",
    "trainer": {"entrypoint": "train:train_fn"},
    "limits": {"max_trials": 1},
}


def test_the_best_checkpoint_outlives_later_epochs_and_the_death_of_a_worker(stack: Stack, tmp_path: Path) -> None:
    config = {"accuracies": ACCURACIES, "killed": str(tmp_path / "killed"), "killed_before": BEST_STEP + 2}
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "experiment.yaml").write_text(json.dumps(SPEC | {"config": config}))

    ended = stack.paceline("submit", str(tmp_path / "experiment.yaml"), "--watch")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    best = get(f"{stack.url}/v1/experiments/{NAME}/best").json()
    trial = get(f"{stack.url}/v1/trials/{best['id']}").json()
    assert [one["outcome"] for one in trial["attempts"]] == ["failed", "completed"]
    assert trial["attempts"][1]["resumed_step"] == BEST_STEP + 1, "it resumes from the newest one"
    assert (trial["value"], trial["best_step"], trial["checkpoint"]["step"]) == (max(ACCURACIES), BEST_STEP, BEST_STEP)

    fetched = stack.paceline("fetch", NAME, "--to", str(tmp_path / "fetched"))
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    [state] = (tmp_path / "fetched").rglob("step")
    assert state.read_text() == str(BEST_STEP)

    stack.wait_for_mirror()
    client = MlflowClient(tracking_uri=stack.mlflow_url)
    found = client.get_experiment_by_name(NAME)
    assert found
    [run] = client.search_runs([found.experiment_id], f"tags.`paceline.trial_id` = '{trial['id']}'")
    assert run.data.metrics["paceline/best_accuracy"] == max(ACCURACIES)
    assert run.data.tags["paceline.best_step"] == str(BEST_STEP)
