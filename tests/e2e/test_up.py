"""`paceline up`: its errors, what it survives, and that it leaves nothing behind."""

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from mlflow import MlflowClient

from service.cli.client import Unreachable
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.ports import accepts
from tests.e2e.conftest import PACELINE, STOP_SECONDS, Stack, running_stack, until

NAME, TRIALS, STEPS = "steady", 9, 6
TRAINING = f"""
import time
import ray.train

def train_fn(config):
    for step in range(1, {STEPS} + 1):
        time.sleep(0.2)
        ray.train.report({{"step": step, "loss": config["x"] / step}})
"""
SPEC = {
    "name": NAME,
    "space": {"x": {"type": "float", "low": 1.0, "high": 2.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "search": {"sampler": "random", "seed": 7},
    "trainer": {"entrypoint": "train:train_fn", "scaling": {"num_workers": 1, "resources_per_worker": {"CPU": 1}}},
    "limits": {"max_trials": TRIALS, "parallelism": 1},
    "step_metric": "step",
}


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory. What a failed test leaves running is cleaned up."""
    yield tmp_path / "data"
    if left := left_in(tmp_path / "data"):
        left.clean_up()


def left_in(data_dir: Path) -> CleanupRecord | None:
    return CleanupRecord.read(data_dir / "up.cleanup")


def submit(stack: Stack, directory: Path) -> None:
    (directory / "train.py").write_text(TRAINING)
    (directory / "experiment.yaml").write_text(json.dumps(SPEC))
    ended = stack.paceline("submit", str(directory / "experiment.yaml"), "--code", str(directory / "train.py"))
    assert ended.returncode == 0, ended.stderr


def shown(stack: Stack) -> dict[str, Any]:
    """Return the experiment; {} while the service does not answer."""
    try:
        return stack.experiment(NAME)
    except Unreachable:
        return {}


def completed_count(stack: Stack) -> int:
    return int(shown(stack).get("counts", {}).get("completed", 0))


def wait_for_more(stack: Stack) -> None:
    """Wait until one more trial has completed."""
    before = completed_count(stack)
    until(lambda: completed_count(stack) > before, "a trial ends")


def component(stack: Stack, word: str) -> psutil.Process:
    """Return the first process of the stack with this word, or a file of this name, in its command."""
    return next(one for one in stack.processes() if word in {Path(each).name for each in words_of(one)})


def words_of(process: psutil.Process) -> list[str]:
    """Return the process's command; [] when it has just ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill all processes before any of them can react."""
    for process in processes:
        process.suspend()
    for process in processes:
        process.kill()


def refused(*arguments: str) -> str:
    """Return what `paceline up` prints when it does not start."""
    ended = subprocess.run([*PACELINE, "up", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.parametrize("option", ["--port", "--mlflow-port"])
def test_a_taken_port_is_named_with_the_setting_to_change(tmp_path: Path, option: str) -> None:
    ports = {"--port": "0", "--mlflow-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports[option] = str(port)
        said = refused("--data-dir", str(tmp_path), *(word for pair in ports.items() for word in pair))
    assert f"port {port} of 127.0.0.1 is already taken" in said
    assert f"`{option} {port + 1}`" in said


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused("--data-dir", str(tmp_path / "file" / "data"))
    assert f"the data directory {tmp_path}/file/data cannot be written" in said
    assert "--data-dir" in said


def test_a_second_stack_in_the_same_data_directory_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"a stack runs in {tmp_path} already" in refused("--data-dir", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_starts_leaves_nothing(data_dir: Path, by: signal.Signals) -> None:
    """Its output is a terminal, which SIGHUP closes."""
    master, slave = pty.openpty()
    command = [*PACELINE, "up", "--data-dir", str(data_dir), "--port", "0", "--mlflow-port", "0"]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    terminal = os.fdopen(master)
    until(lambda: len(psutil.Process(process.pid).children()) == 3, "guardian, Ray and MLflow start")
    left, family = left_in(data_dir), psutil.Process(process.pid).children(recursive=True)
    if by == signal.SIGHUP:
        terminal.close()

    process.send_signal(by)

    code = process.wait(STOP_SECONDS)
    terminal.close()
    assert code in ({0} if by != signal.SIGHUP else {0, 120})
    assert not psutil.wait_procs(family, timeout=2)[1]
    assert left
    assert not Path(left.directory).exists()
    assert not left_in(data_dir)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_a_killed_stack_continues_after_a_restart_and_counts_every_trial_once(data_dir: Path, tmp_path: Path) -> None:
    with running_stack(data_dir) as stack:
        submit(stack, tmp_path)
        wait_for_more(stack)
        orphans = [component(stack, "serve"), component(stack, "uvicorn")]  # they hold the ports
        kill([process for process in stack.processes() if process not in orphans])
        stack.process.wait()
        assert all(process.is_running() for process in orphans)

    with running_stack(data_dir) as stack:
        assert not psutil.wait_procs(orphans, timeout=2)[1]
        for words in (["serve", "mlflow", "service.stack.orphan_cleanup"], ["gcs_server"], ["trainer.agent.process"]):
            wait_for_more(stack)
            kill([component(stack, word) for word in words])
        wait_for_more(stack)
        assert stack.stop(signal.SIGINT) == 0
        assert not any(accepts("127.0.0.1", int(url.rpartition(":")[2])) for url in (stack.url, stack.mlflow_url))
        assert not left_in(data_dir)

    with running_stack(data_dir) as stack:
        until(lambda: shown(stack).get("status") == "completed", "the search goes on to its end")
        audit(stack)
        assert stack.stop(signal.SIGTERM) == 0


def audit(stack: Stack) -> None:
    """Check that the API and MLflow have each trial once, and each of its steps once with the right value."""
    expected = {}
    with httpx.Client(base_url=stack.url, trust_env=False) as http:
        trials = http.get(f"/v1/experiments/{NAME}/trials", params={"limit": 100}).json()["items"]
        assert sorted(trial["number"] for trial in trials) == list(range(TRIALS))
        for trial in trials:
            assert trial["status"] == "completed", trial
            reports = http.get(f"/v1/trials/{trial['id']}/reports").json()["items"]
            curve = {step: trial["params"]["x"] / step for step in range(1, STEPS + 1)}
            assert [(one["step"], one["metrics"]["loss"]) for one in reports] == list(curve.items())
            expected[trial["id"]] = curve
    until(lambda: mirrored(stack) == expected, "MLflow has it all")


def mirrored(stack: Stack) -> dict[str, dict[int, float]]:
    """Return each trial's curve from MLflow; {} until the experiment has ended there."""
    client = MlflowClient(tracking_uri=stack.mlflow_url)
    found = client.get_experiment_by_name(NAME)
    runs = client.search_runs([found.experiment_id]) if found else []
    if not runs or any(run.info.status != "FINISHED" for run in runs):
        return {}
    trials = [run for run in runs if run.info.run_name != NAME]
    histories = {run: client.get_metric_history(run.info.run_id, "loss") for run in trials}
    assert all(len(points) == STEPS for points in histories.values())
    assert len({run.data.tags["paceline.trial_id"] for run in trials}) == len(trials)
    return {
        run.data.tags["paceline.trial_id"]: {point.step: point.value for point in points}
        for run, points in histories.items()
    }
