"""`paceline demo`: starts the stack, runs examples/digits with a live view, and stops the stack."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from service import private_files
from service.cli.client.client import Client
from service.cli.options.shared_options import access_token
from service.cli.submission import Changes, submit, unused_name
from service.cli.terminal.watch import watch_experiment
from service.module_command import module_command
from service.stack.ports import is_free
from service.stack.state_file import read_state
from service.stack.up import runs_under_nohup, tolerant
from service.stack.up_options import HOST

SPEC = Path("examples/digits/experiment.yaml")
STOP_SECONDS = 60
OUTAGE_SECONDS = 30
"""How long the service may not answer before the demo ends: the stack starts a killed one again immediately."""

_STOPPED = "Stopped. To look at the results again: paceline up --data-dir {data_dir}"


class DemoFailed(Exception):
    """Why the demo did not run, as a message for the terminal."""


def run(data_dir: Path, port: int, mlflow_port: int, console: Console, *, keep: bool) -> dict[str, Any]:
    """Return the experiment as it ended. Raises DemoFailed when the stack does not start."""
    token = access_token()
    if not SPEC.exists():
        raise DemoFailed(f"there is no {SPEC} here; run the demo in the root of Paceline's repository")
    with (
        _running_stack(data_dir, port, mlflow_port, console, keep=keep) as state,
        Client(state["url"], token) as client,
    ):
        name = unused_name(client, "digits")
        console.print(f"Submitting {SPEC} as {name} …\n", highlight=False)
        submit(client, SPEC, changes=Changes(name=name))
        ended = watch_experiment(client, name, console, OUTAGE_SECONDS)
        if keep:
            console.print(f"\nThe stack is still running. To stop it: kill {state['pid']}", highlight=False)
        return ended


@contextlib.contextmanager
def _running_stack(
    data_dir: Path, port: int, mlflow_port: int, console: Console, *, keep: bool
) -> Iterator[dict[str, Any]]:
    """The stack also ends when this process is killed, unless it is to be kept: then the pipe to it closes."""
    private_files.restrict_new_files()
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the data directory {data_dir} cannot be created ({error.strerror}); choose another one with --data-dir"
        raise DemoFailed(why) from error
    log = data_dir / "up.log"
    command = module_command("service.cli", "up", "--data-dir", str(data_dir))
    command += ["--port", str(_port_option(port, console)), "--mlflow-port", str(_port_option(mlflow_port, console))]
    command += [] if keep else ["--until-stdin-closes"]
    console.print("Starting Ray, MLflow, the service and an agent …", highlight=False)
    for number in [signal.SIGTERM] if runs_under_nohup() else [signal.SIGTERM, signal.SIGHUP]:
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # raises, so that `finally` stops the stack
    process, done = None, False
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        yield _state_when_ready(process, data_dir, log)
        done = True
    finally:
        if process is not None and process.poll() is None and not (keep and done):
            _stop(process, tolerant(partial(console.print, highlight=False)), data_dir)


def _stop(process: subprocess.Popen[bytes], say: Callable[[str], None], data_dir: Path) -> None:
    process.send_signal(signal.SIGINT)
    say("\nStopping everything …")
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"Process {process.pid} is still stopping the stack after {STOP_SECONDS} s; its log is {data_dir}/up.log")
        return
    if process.stdin:
        process.stdin.close()
    say(_STOPPED.format(data_dir=data_dir))


def _state_when_ready(process: subprocess.Popen[bytes], data_dir: Path, log: Path) -> dict[str, Any]:
    while process.poll() is None:
        state = read_state(data_dir)
        if state and state["pid"] == process.pid:
            return state
        time.sleep(0.2)
    raise DemoFailed(log.read_text(errors="replace").strip().removeprefix("error: "))


def _port_option(port: int, console: Console) -> int:
    """Return the port, or 0 (which picks a free one) when it is taken: the demo should run nevertheless."""
    if not port or is_free(HOST, port):
        return port
    console.print(f"Port {port} is taken; using a free one.", highlight=False)
    return 0
