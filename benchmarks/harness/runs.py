"""Runs one experiment on Paceline or on a peer, each with a Ray cluster of its own that is stopped afterwards.

Only the experiment is timed: Ray and Paceline's own processes are up before it begins.
"""

import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.trials import Run, read
from service.cli.client.client import Client
from service.cli.code_archive import packed
from service.stack.child_process import ChildProcess
from service.stack.state_file import read_state
from service.stack.up import STOP_SIGNALS

FUNCTIONS = Path(__file__).parents[1] / "functions"
CPUS = 8
"""Ray's logical CPUs for each runner. A trial takes one for each worker and, with Ray Tune, one more."""
START_SECONDS = 180
SETTLED_SECONDS = 10.0
"""The pause before the experiment is submitted, in which the stack's spare slot finishes its imports."""
STOP_SECONDS = 30
LONGEST_SECONDS = 3600
POLL_SECONDS, STATUS_SECONDS = 0.05, 0.2
"""A request for an experiment's status costs the service more than reading a file does."""
BEST_OF_RAY = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}
"""Settings that make the peers faster without changes to their code."""

Spec = dict[str, Any]


class RunFailed(Exception):
    """A run that did not end well, with the last lines of its log."""

    def __init__(self, what: str, child: ChildProcess) -> None:
        super().__init__("\n".join([f"{what}; its log ends:", *child.tail()]))


def exit_cleanly_on_signals() -> None:
    """Let a stop signal raise SystemExit once, so that everything that was started is stopped."""

    def leave(number: int, _frame: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in STOP_SIGNALS:
        signal.signal(number, leave)


def run_on_paceline(spec: Spec) -> Run:
    """Run on a whole stack as `paceline up` starts it, with the mirror to MLflow. Raises RunFailed."""
    command = [sys.executable, "-m", "service.cli", "up", "--port", "0", "--mlflow-port", "0", "--cpus", str(CPUS)]
    with _home() as home, _running([*command, "--data-dir", str(home)], os.environ, home / "up.log") as stack:
        _await(stack, lambda: read_state(home) is not None, START_SECONDS, "Paceline does not start")
        with Client(str((read_state(home) or {})["url"])) as client:
            content = json.dumps(_with_timestamps(spec, home)).encode()
            time.sleep(SETTLED_SECONDS)
            began = time.monotonic()
            with packed(FUNCTIONS) as code:
                client.submit(content, code)
            _await(stack, lambda: _ended(client, spec), LONGEST_SECONDS, "Paceline does not finish", STATUS_SECONDS)
            ended = time.monotonic()
            experiment = client.experiment(spec["name"])
            if experiment["status"] != "completed":
                raise RunFailed(f"the experiment is {experiment['status']}: {experiment['end_detail']}", stack)
        return Run(began, ended, read(home / "timestamps"))


def run_on_peer(peer: str, spec: Spec, watch: Callable[[Path], None] = lambda _folder: None) -> Run:
    """Run on a peer of benchmarks/harness/peers.py, which reads the same spec. Raises RunFailed.

    `watch` is called repeatedly with the folder that the training functions write to.
    """
    with _home() as home:
        (home / "spec.json").write_text(json.dumps(_with_timestamps(spec, home)))
        result = home / "run.json"
        command = [sys.executable, "-m", "benchmarks.harness.peers", peer, str(home), str(CPUS)]
        with _running(command, _peers_environment(home), home / "peer.log") as child:
            _await(
                child,
                result.exists,
                LONGEST_SECONDS,
                f"{peer} does not finish",
                meanwhile=lambda: watch(home / "timestamps"),
            )
            return Run(**json.loads(result.read_text()), trials=read(home / "timestamps"))


def _peers_environment(home: Path) -> dict[str, str]:
    token = home / "ray-token"
    token.write_text(secrets.token_hex(32))
    return {
        **os.environ,
        **BEST_OF_RAY,
        "PYTHONPATH": os.pathsep.join([str(FUNCTIONS), os.environ.get("PYTHONPATH", "")]),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pace-bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        (home / "timestamps").mkdir()
        yield home


@contextmanager
def _running(command: list[str], env: Mapping[str, str], log: Path) -> Iterator[ChildProcess]:
    child = ChildProcess(lambda: command, env, log)
    child.start()
    try:
        yield child
    finally:
        child.stop(STOP_SECONDS)


def _with_timestamps(spec: Spec, home: Path) -> Spec:
    return spec | {"config": spec.get("config", {}) | {"timestamps": str(home / "timestamps")}}


def _ended(client: Client, spec: Spec) -> bool:
    return bool(client.experiment(spec["name"])["status"] != "running")


def _await(
    child: ChildProcess,
    done: Callable[[], bool],
    seconds: float,
    message: str,
    pause: float = POLL_SECONDS,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Raise RunFailed with the message when the child ends, or the time is over, before it is done."""
    deadline = time.monotonic() + seconds
    while not done():
        if child.exit_code is not None or time.monotonic() > deadline:
            raise RunFailed(message, child)
        meanwhile()
        time.sleep(pause)
    meanwhile()
