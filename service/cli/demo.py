"""`make demo`: the stack comes up, examples/digits runs before your eyes, and the stack is stopped again."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from service.cli.client import Client
from service.cli.live_view import watch
from service.cli.submission import submit
from service.stack import up
from service.stack.child_process import is_free

SPEC = Path("examples/digits/experiment.yaml")
STOP_SECONDS = 15


class DemoFailed(Exception):
    """Why the demo could not run; for the person at the terminal."""


def run(data_dir: Path, port: int, mlflow_port: int, console: Console, *, keep: bool) -> dict[str, Any]:
    """Return the experiment as it ended. Raises DemoFailed when the stack does not come up."""
    if not SPEC.exists():
        raise DemoFailed(f"{SPEC} is not here: run the demo from the root of Paceline's repository")
    with (
        _stack(data_dir, port, mlflow_port, console, keep=keep) as state,
        Client(state["url"], os.environ.get("PACELINE_TOKEN")) as client,
    ):
        name = _unused_name(client)
        console.print(f"Submitting {SPEC} as {name} …\n", highlight=False)
        submit(client, SPEC, code=None, name=name)
        ended = watch(client, name, console)
        if keep:
            console.print(f"\nLeft running. Stop it: kill {state['pid']}", highlight=False)
        return ended


@contextlib.contextmanager
def _stack(data_dir: Path, port: int, mlflow_port: int, console: Console, *, keep: bool) -> Iterator[dict[str, Any]]:
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "up.log"
    command = [sys.executable, "-m", "service.cli", "up", "--data-dir", str(data_dir)]
    command += ["--port", str(_usable(port, console)), "--mlflow-port", str(_usable(mlflow_port, console))]
    console.print("Starting Ray, MLflow, the service and an agent …", highlight=False)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that what follows is undone here too
    done = False
    try:
        yield _ready(process, data_dir, log)
        done = True
    finally:
        if process.poll() is None and not (keep and done):
            console.print("\nStopping everything …", highlight=False)
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)


def _ready(process: subprocess.Popen[bytes], data_dir: Path, log: Path) -> dict[str, Any]:
    while process.poll() is None:
        state = up.running(data_dir)
        if state and state["pid"] == process.pid:
            return state
        time.sleep(0.2)
    raise DemoFailed(log.read_text(errors="replace").strip().removeprefix("error: "))


def _usable(port: int, console: Console) -> int:
    """Return the port, or 0, which takes a free one, where it is taken: a demo should not fail for that."""
    if not port or is_free(up.HOST, port):
        return port
    console.print(f"Port {port} is taken; taking a free one.", highlight=False)
    return 0


def _unused_name(client: Client) -> str:
    """`digits`, or `digits-2` and so on where the data directory holds earlier runs."""
    taken = {experiment["name"] for experiment in client.experiments()}
    names = ["digits", *(f"digits-{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)
