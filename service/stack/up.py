"""`paceline up`: Ray, MLflow, the service and an agent on one machine, until told to stop."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx

from service.cli.client import Client, Refused, Unreachable
from service.stack.child_process import Child, accepts, free_port, is_free
from service.stack.mlflow_server import MLFLOW_ENVIRONMENT, mlflow_server
from service.stack.orphan_cleanup import PREFIX, Leftovers
from service.stack.process_tags import VARIABLE as MARK
from service.stack.process_tags import bearing, end_marked, new_mark
from service.stack.supervisor import Part, Supervisor

HOST = "127.0.0.1"
START_SECONDS = 120.0
AGENT_NAME = "local"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_RAY_DIRECTORY = 43
"""Ray puts sockets below it, and a socket's path may have 107 bytes."""


class CannotStart(Exception):
    """Why the stack cannot start, and what to do; for the person at the terminal."""


@dataclass(frozen=True)
class Options:
    """A port of 0 takes a free one. `cpus` are Ray's logical CPUs: how many workers fit, not how fast they are."""

    data_dir: Path
    port: int = 8000
    mlflow_port: int = 5000
    mlflow: bool = True
    cpus: int | None = None

    def resolved(self) -> Self:
        """With every choice made. Raises CannotStart for a port that is taken."""
        return replace(
            self,
            data_dir=self.data_dir.absolute(),
            port=_choose(self.port, "port"),
            mlflow_port=_choose(self.mlflow_port, "mlflow-port") if self.mlflow else self.mlflow_port,
            cpus=self.cpus or max(8, os.cpu_count() or 1),
        )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def mlflow_url(self) -> str | None:
        return f"http://{HOST}:{self.mlflow_port}" if self.mlflow else None

    @property
    def state_file(self) -> Path:
        """Written when the stack is ready, removed when it has stopped: `{pid, url, mlflow_url}`."""
        return self.data_dir / "up.json"


def run(options: Options, say: Callable[[str], None] = print) -> None:
    """Run the stack until Ctrl-C, SIGTERM, or the terminal is closed. A second signal while stopping kills at once.

    Raises CannotStart before anything was started, and PartFailed for a part that cannot be kept running; in both
    cases, as at the end, nothing is left running.
    """
    mark, data_dir, say = new_mark(), options.data_dir.absolute(), _to_whom_it_concerns(say)
    with _signals(mark) as stopping, _only_one(data_dir), _leftovers(data_dir, mark, say) as leftovers:
        options.state_file.unlink(missing_ok=True)
        options = options.resolved()
        supervisor = Supervisor(_stages(options, leftovers), stopping, say)
        try:
            say("Starting Ray, MLflow, the service and an agent …" if options.mlflow else "Starting …")
            supervisor.start(START_SECONDS)
            if not stopping():
                _announce(options, say)
            supervisor.watch_over()
        finally:
            say("Stopping …")
            supervisor.stop()
            options.state_file.unlink(missing_ok=True)
    say("Stopped.")


def running(data_dir: Path) -> dict[str, Any] | None:
    """What `up` wrote about the stack that is ready in this data directory; None when there is none."""
    try:
        state: dict[str, Any] = json.loads(Options(data_dir).state_file.read_text())
        os.kill(state["pid"], 0)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return state


def _choose(port: int, option: str) -> int:
    if port and not is_free(HOST, port):
        variable = f"PACELINE_{option.replace('-', '_').upper()}"
        raise CannotStart(
            f"port {port} of {HOST} is already taken. Stop what listens there, or choose another: "
            f"`--{option} {port + 1}` or {variable}={port + 1} (0 takes a free one)"
        )
    return port or free_port(HOST)


def _announce(options: Options, say: Callable[[str], None]) -> None:
    state = {"pid": os.getpid(), "url": options.url, "mlflow_url": options.mlflow_url}
    whole = options.state_file.with_suffix(".new")
    whole.write_text(json.dumps(state))
    whole.replace(options.state_file)
    say("\nPaceline is ready.")
    say(f"  API     {options.url}  (its contract: {options.url}/openapi.json)")
    if options.mlflow_url:
        say(f"  MLflow  {options.mlflow_url}")
    say(f"  data    {options.data_dir}  (logs of each part in stack/)")
    say("\nTry: paceline submit examples/digits/experiment.yaml --watch")
    say("Ctrl-C stops everything.")


def _stages(options: Options, leftovers: Leftovers) -> Sequence[Sequence[Part]]:
    logs, ray_directory = options.data_dir / "stack", Path(leftovers.directory)
    logs.mkdir(exist_ok=True)
    env = _environment(options) | bearing(leftovers.mark)
    ray_port = free_port(HOST)
    first = [_ray(options, ray_directory, ray_port, env, logs)]
    if options.mlflow:
        first.append(_mlflow(options, env, logs))
    agent = _agent(options, f"{HOST}:{ray_port}", env, logs)
    return [[_guardian(leftovers, logs)], first, [_service(options, env, logs)], [agent]]


def _environment(options: Options) -> dict[str, str]:
    """What all parts get. Ray's token keeps other users of the machine out of the cluster."""
    token = options.data_dir / "ray-token"
    token.unlink(missing_ok=True)
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    mlflow = {"PACELINE_MLFLOW_URI": options.mlflow_url} if options.mlflow_url else {}
    return (
        inherited
        | mlflow
        | MLFLOW_ENVIRONMENT
        | {
            "PACELINE_DATA_DIR": str(options.data_dir),
            "PACELINE_HOST": HOST,
            "PACELINE_PORT": str(options.port),
            "PACELINE_URL": options.url,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
        }
    )


def _guardian(leftovers: Leftovers, logs: Path) -> Part:
    """Without the stack's mark, since it outlives the stack."""
    child = Child(lambda: leftovers.guardian, os.environ, _fresh(logs / "guardian.log"), lifeline=True)
    return Part("guardian", child, lambda: True)


def _ray(options: Options, directory: Path, port: int, env: dict[str, str], logs: Path) -> Part:
    cluster = directory / "ray_current_cluster"

    def command() -> Sequence[str]:
        _empty(directory)  # a former head's files would be taken for this one's
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port", str(port)]
        command += ["--temp-dir", str(directory), "--num-cpus", str(options.cpus), "--include-dashboard", "false"]
        return [*command, "--disable-usage-stats", "--log-style", "record", "--log-color", "false"]

    # What workers leave behind in temporary files goes with the stack. Users' code gets nothing of our settings.
    env = {name: value for name, value in env.items() if name == MARK or not name.startswith("PACELINE_")}
    child = Child(command, env | {"TMPDIR": str(directory)}, _fresh(logs / "ray.log"))
    return Part("ray", child, lambda: cluster.exists() and accepts(HOST, port))


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()


def _mlflow(options: Options, env: Mapping[str, str], logs: Path) -> Part:
    command = mlflow_server(options.data_dir / "mlflow", HOST, options.mlflow_port)
    child = Child(lambda: command, env, _fresh(logs / "mlflow.log"))
    answers = partial(_answers, f"{options.mlflow_url}/health")
    # What it shows may come a moment later; what trains may not.
    return Part("mlflow", child, answers, answers=answers, gives_way=True)


def _service(options: Options, env: Mapping[str, str], logs: Path) -> Part:
    command = [sys.executable, "-m", "service.cli", "serve"]
    child = Child(lambda: command, env, _fresh(logs / "service.log"))
    ready, answers = partial(_answers, f"{options.url}/readyz"), partial(_answers, f"{options.url}/healthz")
    return Part("service", child, ready, answers=answers)


def _agent(options: Options, ray_address: str, env: Mapping[str, str], logs: Path) -> Part:
    command = [sys.executable, "-m", "service.cli", "agent", "--name", AGENT_NAME, "--ray-address", ray_address]
    started_at = datetime.now(UTC)

    def start() -> Sequence[str]:
        nonlocal started_at
        started_at = datetime.now(UTC)
        return command

    child = Child(start, env, _fresh(logs / "agent.log"))
    return Part("agent", child, lambda: _has_agent(options.url, started_at), grace_seconds=5)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _has_agent(url: str, since: datetime) -> bool:
    try:
        with Client(url, os.environ.get("PACELINE_TOKEN")) as client:
            agents = client.agents()
    except (Unreachable, Refused):
        return False
    return any(one["name"] == AGENT_NAME and datetime.fromisoformat(one["last_seen_at"]) > since for one in agents)


def _fresh(log: Path) -> Path:
    log.write_bytes(b"")
    return log


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Raises CannotStart when the data directory cannot be written, or another stack runs in it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "up.lock").open("a")
    except OSError as error:
        raise CannotStart(
            f"the data directory {data_dir} cannot be written ({error.strerror}). Give yourself the right to write "
            f"there, or choose another place: `--data-dir PATH` (or PACELINE_DATA_DIR)"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            state = running(data_dir) or {}
            where = f" at {state['url']}, process {state['pid']}" if state else ""
            raise CannotStart(
                f"a stack runs in {data_dir} already{where}. Use it, stop it, or choose another `--data-dir` and ports"
            ) from error
        yield


@contextlib.contextmanager
def _leftovers(data_dir: Path, mark: str, say: Callable[[str], None]) -> Iterator[Leftovers]:
    """Room for a new stack's; those of the one before, if it was killed, are removed first."""
    record = data_dir / "up.leftovers"
    if former := Leftovers.read(record):
        say("The last stack here was killed; removing what it left …")
        former.remove()
    directory = _base_for_ray(data_dir) / f"{PREFIX}{mark[-8:]}"
    leftovers = Leftovers(mark, str(directory))
    leftovers.write(record)
    directory.mkdir(mode=0o700)
    try:
        yield leftovers
    finally:
        leftovers.remove()
        record.unlink()


def _base_for_ray(data_dir: Path) -> Path:
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), data_dir]  # noqa: S108
    for base in bases:
        if _is_short(base) and os.access(base, os.W_OK):
            return base
    raise CannotStart(f"Ray needs a directory with a short path, and {bases[0]} is too long: set TMPDIR=/tmp")


def _is_short(base: Path) -> bool:
    return len(os.fsencode(base / f"{PREFIX}12345678")) <= LONGEST_RAY_DIRECTORY


@contextlib.contextmanager
def _signals(mark: str) -> Iterator[Callable[[], bool]]:
    """Whether one has come. No event: a handler that sets one may interrupt the very wait that holds its lock."""
    count = 0

    def handle(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            end_marked(mark)

    earlier = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield lambda: count > 0
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _to_whom_it_concerns(say: Callable[[str], None]) -> Callable[[str], None]:
    """At once, also into a file. A closed terminal takes no more words: that must not keep the stack from stopping."""

    def said(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)
            sys.stdout.flush()

    return said
