"""`paceline up`: its errors, what it survives, and that it leaves nothing behind."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from mlflow import MlflowClient

from service.cli.client.answers import Unreachable
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.ports import accepts
from tests.e2e.conftest import COMMAND_SECONDS, FREE_PORTS, PACELINE, STOP_SECONDS, Stack, running_stack, until
from tests.processes import command_line, is_alive, kill_all, left_alive

NAME, TRIALS, STEPS = "steady", 9, 6
MLFLOW = "service.stack.mlflow_single_process"

TRAINING = f"""
import contextlib
import sys
import time
from pathlib import Path

for step in range(1, {STEPS} + 1):
    time.sleep(0.2)
    print(f"step={{step}} loss={{float(sys.argv[1]) / step}}", flush=True)

tickets = Path(sys.argv[2])
while not (tickets / sys.argv[1]).exists():
    time.sleep(0.05)
    for ticket in list(tickets.glob("ticket-*"))[:1]:
        with contextlib.suppress(FileNotFoundError):  # a killed attempt of this trial has just taken it
            ticket.rename(tickets / sys.argv[1])
"""
"""Each trial needs a ticket to end. So the search goes on for as long as the test kills parts of the stack."""
SPEC: dict[str, Any] = {
    "name": NAME,
    "space": {"x": {"type": "float", "low": 1.0, "high": 2.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "search": {"sampler": "random", "seed": 7},
    # A command, because importing torch takes each new process seconds, and there are dozens of them.
    "trainer": {
        "kind": "command",
        "command": [sys.executable, "train.py", "{params.x}"],
        "metrics": {"stdout": [r"step=(?P<step>\d+) loss=(?P<loss>\S+)"]},
        "scaling": {"num_workers": 1, "resources_per_worker": {"CPU": 1}},
    },
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


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    directory = tmp_path / "tickets"
    directory.mkdir()
    return directory


def submit(stack: Stack, directory: Path, tickets: Path) -> None:
    command = [*SPEC["trainer"]["command"], str(tickets)]
    (directory / "train.py").write_text(TRAINING)
    (directory / "experiment.yaml").write_text(json.dumps(SPEC | {"trainer": SPEC["trainer"] | {"command": command}}))
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


def wait_for_more(stack: Stack, tickets: Path) -> None:
    """Let one more trial complete."""
    until(lambda: bool(shown(stack)), "the service answers")
    before = completed_count(stack)
    (tickets / f"ticket-{before}").touch()
    until(lambda: completed_count(stack) > before, "a trial ends")


def component(stack: Stack, word: str) -> psutil.Process:
    """Return the first process of the stack with this word, or a file of this name, in its command."""
    found: list[psutil.Process] = []

    def runs() -> bool:
        found[:] = [one for one in stack.processes() if word in {Path(each).name for each in command_line(one)}]
        return bool(found)

    until(runs, f"{word} runs")  # it may just be restarting
    return found[0]


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill all processes before any of them can react."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    kill_all(processes)


def refused(*arguments: str) -> str:
    """Return what `paceline up` prints when it does not start."""
    ended = subprocess.run(
        [*PACELINE, "up", *arguments], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--port", "--mlflow-port"])
def test_a_taken_port_is_named_with_the_setting_to_change(tmp_path: Path, option: str) -> None:
    ports = {"--port": "0", "--mlflow-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports[option] = str(port)
        said = refused("--data-dir", str(tmp_path), *(word for pair in ports.items() for word in pair))
    assert f"port {port} of 127.0.0.1 is already taken" in said
    advised = re.search(rf"`{option} (\d+)`", said)
    assert advised
    assert int(advised[1]) > port  # mostly the next one, unless another test uses it


@pytest.mark.slow
def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused("--data-dir", str(tmp_path / "file" / "data"))
    assert f"the data directory {tmp_path}/file/data cannot be written" in said
    assert "--data-dir" in said


@pytest.mark.slow
def test_a_file_in_place_of_a_folder_of_the_data_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack").touch()
    said = refused("--data-dir", str(tmp_path), *FREE_PORTS)
    assert said == f"error: the stack cannot be prepared: {tmp_path}/stack: File exists\n"
    assert not left_in(tmp_path)


@pytest.mark.slow
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
    until(lambda: len(psutil.Process(process.pid).children()) >= 4, "guardian, Ray, MLflow and service start")
    left, family = left_in(data_dir), psutil.Process(process.pid).children(recursive=True)
    if by == signal.SIGHUP:
        terminal.close()

    process.send_signal(by)

    code = process.wait(STOP_SECONDS)
    terminal.close()
    assert code in ({0} if by != signal.SIGHUP else {0, 120})
    assert not left_alive(family)
    assert left
    assert not Path(left.directory).exists()
    assert not left_in(data_dir)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_a_killed_stack_continues_after_a_restart_and_counts_every_trial_once(
    data_dir: Path, tmp_path: Path, tickets: Path
) -> None:
    with running_stack(data_dir) as stack:
        submit(stack, tmp_path, tickets)
        wait_for_more(stack, tickets)
        orphans = [component(stack, "serve"), component(stack, MLFLOW)]  # they hold the ports
        kill([process for process in stack.processes() if process not in orphans])
        stack.process.wait()
        assert all(map(is_alive, orphans))

    with running_stack(data_dir) as stack:
        assert not left_alive(orphans)
        for words in (["serve", MLFLOW, "service.stack.orphan_cleanup"], ["gcs_server"], ["trainer.agent.process"]):
            wait_for_more(stack, tickets)
            kill([component(stack, word) for word in words])
        wait_for_more(stack, tickets)
        assert stack.stop(signal.SIGINT) == 0
        assert not any(accepts("127.0.0.1", int(url.rpartition(":")[2])) for url in (stack.url, stack.mlflow_url))
        assert not left_in(data_dir)

    with running_stack(data_dir) as stack:
        for number in range(TRIALS):
            (tickets / f"ticket-{TRIALS}-{number}").touch()
        until(lambda: shown(stack).get("status") == "completed", "the search goes on to its end")
        audit(stack)
        assert stack.stop(signal.SIGTERM) == 0


def audit(stack: Stack) -> None:
    """Check that the API and MLflow have each trial once, and each of its steps once with the right value."""
    expected = {}
    with httpx.Client(base_url=stack.url, trust_env=False, timeout=COMMAND_SECONDS) as http:
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
