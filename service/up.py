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
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx

from service.client import Client, Refused, Unreachable
from service.processes import Child, accepts, free_port, is_free
from service.supervision import Part, Supervisor

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
    stopping = threading.Event()
    with _only_one(options.data_dir.absolute()), _ray_directory(options.data_dir.absolute()) as ray_directory:
        options = options.resolved()
        supervisor = Supervisor(_stages(options, ray_directory), stopping, say)
        with _signals(stopping, supervisor.kill):
            try:
                say("Starting Ray, MLflow, the service and an agent …" if options.mlflow else "Starting …")
                supervisor.start(START_SECONDS)
                if not stopping.is_set():
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
    except (FileNotFoundError, ProcessLookupError):
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
    options.state_file.write_text(json.dumps(state))
    say("\nPaceline is ready.")
    say(f"  API     {options.url}  (its contract: {options.url}/openapi.json)")
    if options.mlflow_url:
        say(f"  MLflow  {options.mlflow_url}")
    say(f"  data    {options.data_dir}  (logs of each part in stack/)")
    say("\nTry: paceline submit examples/digits/experiment.yaml --watch")
    say("Ctrl-C stops everything.")


def _stages(options: Options, ray_directory: Path) -> Sequence[Sequence[Part]]:
    logs = options.data_dir / "stack"
    logs.mkdir(exist_ok=True)
    env = _environment(options)
    first = [_ray(options, ray_directory, env, logs)]
    if options.mlflow:
        first.append(_mlflow(options, env, logs))
    return [first, [_service(options, env, logs)], [_agent(options, ray_directory, env, logs)]]


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
        | {
            "PACELINE_DATA_DIR": str(options.data_dir),
            "PACELINE_HOST": HOST,
            "PACELINE_PORT": str(options.port),
            "PACELINE_URL": options.url,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # Seven processes that run MLflow's own jobs, of which Paceline has none.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "PYTHONUNBUFFERED": "1",
        }
    )


def _ray(options: Options, directory: Path, env: dict[str, str], logs: Path) -> Part:
    port = free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port", str(port)]
    command += ["--temp-dir", str(directory), "--num-cpus", str(options.cpus), "--include-dashboard", "false"]
    command += ["--disable-usage-stats", "--log-style", "record", "--log-color", "false"]
    # What workers leave behind in temporary files goes with the stack.
    child = Child(lambda: command, env | {"TMPDIR": str(directory)}, _fresh(logs / "ray.log"))
    return Part("ray", child, lambda: _ray_address(directory) is not None and accepts("127.0.0.1", port))


def _ray_address(directory: Path) -> str | None:
    file = directory / "ray_current_cluster"
    return file.read_text().strip() or None if file.exists() else None


def _mlflow(options: Options, env: Mapping[str, str], logs: Path) -> Part:
    home = options.data_dir / "mlflow"
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(options.mlflow_port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(home / "artifacts"), "--uvicorn-opts", "--log-level warning"]
    child = Child(lambda: command, env, _fresh(logs / "mlflow.log"))
    return Part("mlflow", child, lambda: _answers(f"{options.mlflow_url}/health"))


def _service(options: Options, env: Mapping[str, str], logs: Path) -> Part:
    command = [sys.executable, "-m", "service.cli", "serve"]
    child = Child(lambda: command, env, _fresh(logs / "service.log"))
    return Part("service", child, lambda: _answers(f"{options.url}/readyz"))


def _agent(options: Options, directory: Path, env: Mapping[str, str], logs: Path) -> Part:
    def command() -> Sequence[str]:
        address = _ray_address(directory) or "auto"
        return [sys.executable, "-m", "service.cli", "agent", "--name", AGENT_NAME, "--ray-address", address]

    since = datetime.now(UTC)
    child = Child(command, env, _fresh(logs / "agent.log"))
    return Part("agent", child, lambda: _has_agent(options.url, since), grace_seconds=5)


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
def _ray_directory(data_dir: Path) -> Iterator[Path]:
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), data_dir]  # noqa: S108
    base = next((base for base in bases if _is_short(base) and os.access(base, os.W_OK)), None)
    if base is None:
        raise CannotStart(f"Ray needs a directory with a short path, and {bases[0]} is too long: set TMPDIR=/tmp")
    directory = Path(tempfile.mkdtemp(prefix="paceline-", dir=base))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _is_short(base: Path) -> bool:
    return len(os.fsencode(base / "paceline-12345678")) <= LONGEST_RAY_DIRECTORY


@contextlib.contextmanager
def _signals(stopping: threading.Event, kill: Callable[[], None]) -> Iterator[None]:
    def handle(_number: int, _frame: object) -> None:
        if stopping.is_set():
            kill()
        stopping.set()

    earlier = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
