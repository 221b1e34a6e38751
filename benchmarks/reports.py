"""Reports a second, each stored durably and each with its ASHA decision: Paceline's service beside Optuna's storages.

Many trials run at the same time. Each reports, waits for the decision, and reports again, as training functions do.
Optuna has no service: its trials write to the database directly (`trial.report`, `trial.should_prune`), or to its gRPC
proxy. OSS Vizier has a service with a stopping rule of its own. It needs a separate environment (the package
google-vizier with the extra jax, and a newer equinox than that requires), and supports only SQLite. The peers' trials
are spread over threads and processes in several layouts, of which the best counts.

    python -m benchmarks.reports [--seconds 10] [--trials 50 200] [--databases sqlite postgresql] [--mlflow]
                                 [--vizier path/to/its/python]

With `--mlflow` Paceline is measured once more, mirroring everything to a real MLflow server on the same machine.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import optuna

from benchmarks.harness.figures import machine
from benchmarks.harness.load import Load, report_continuously, running_trials
from benchmarks.recovery import HOST, Paceline, postgresql, until_served
from service.stack.child_process import LOW_PRIORITY, ChildProcess
from service.stack.mlflow_command import MLFLOW_ENVIRONMENT, mlflow_server_command
from service.stack.ports import accepts, free_port
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

LAYOUTS = ((1, 1), (1, 4), (2, 1), (2, 4), (4, 4))
"""The peers' processes, and threads in each."""
PAUSE_SECONDS = 2.0
PYTHON = (sys.executable, "-W", "ignore")

Rate = tuple[str, float]
"""A name, and its reports a second."""


def spec(trials: int) -> dict[str, Any]:
    return {
        "name": f"load-{uuid.uuid4().hex[:8]}",
        "space": {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "random", "seed": 7},
        "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
        "trainer": {"kind": "external"},
        "limits": {"max_trials": trials, "parallelism": trials},
    }


@contextmanager
def mlflow(home: Path) -> Iterator[str]:
    """Run an MLflow server as `paceline up` does."""
    port = free_port()
    command, env = mlflow_server_command(home / "mlflow", HOST, port), os.environ | MLFLOW_ENVIRONMENT
    child = ChildProcess(lambda: command, env, home / "mlflow.log")
    child.start()
    try:
        until_served(lambda: accepts(HOST, port), time.perf_counter())
        child.set_priority(LOW_PRIORITY)
        yield f"http://{HOST}:{port}"
    finally:
        child.kill()


def measure_paceline(database_url: str, home: Path, options: argparse.Namespace, *, mirrored: bool) -> Iterator[Rate]:
    """Measure the highest rate, then the latencies at half of it; under full load they would only show the queue."""
    database = Database(database_url)
    upgrade(database)
    database.close()
    with ExitStack() as stack:
        env = {"PACELINE_MLFLOW_URI": stack.enter_context(mlflow(home))} if mirrored else {}
        service = Paceline(database_url, home, **env)
        service.process.start()
        stack.callback(service.process.kill)
        until_served(service.ready, time.perf_counter())
        url = f"http://{HOST}:{service.port}"
        for trials in options.trials:
            name = f"Paceline, {trials} trials{', mirrored' if mirrored else ''}"
            full = _load(url, trials, options.seconds, None)
            print(f"  {name:<30} {full.per_second:7.0f} reports/s   {_latencies(full)}", flush=True)
            time.sleep(PAUSE_SECONDS)
            half = _load(url, trials, options.seconds, full.per_second / 2)
            print(f"  {'  at half of that':<30} {half.per_second:7.0f} reports/s   {_latencies(half)}", flush=True)
            yield name, full.per_second


def _load(url: str, trials: int, seconds: float, pace: float | None) -> Load:
    return asyncio.run(report_continuously(url, running_trials(url, spec(trials)), seconds, pace=pace))


def _latencies(load: Load) -> str:
    return f"median {load.quantile(0.5) * 1e3:.1f} ms, p99 {load.quantile(0.99) * 1e3:.1f} ms"


def measure_optuna(name: str, storage: str, seconds: float) -> float:
    def command(study: str, threads: int) -> list[str]:
        return [*PYTHON, "-m", "benchmarks.reports", "--worker", storage, study, str(threads), str(seconds)]

    def create(study: str) -> None:
        optuna.create_study(storage=_storage(storage), study_name=study, direction="maximize", sampler=_sampler())

    return _best_layout(name, command, create)


def measure_vizier(python: str, database_url: str, seconds: float) -> float:
    """The service creates the study for the first process that asks."""
    script = ["env", "-u", "PYTHONPATH", python, "-W", "ignore", str(Path(__file__).with_name("vizier_client.py"))]
    with subprocess.Popen([*script, "serve", database_url], stdout=subprocess.PIPE, text=True) as server:
        try:
            endpoint = next(iter(server.stdout or ())).strip()
            return _best_layout(
                "Vizier's service",
                lambda study, threads: [*script, "load", endpoint, study, str(threads), str(seconds)],
            )
        finally:
            server.kill()


def _best_layout(
    name: str, command: Callable[[str, int], list[str]], create: Callable[[str], object] = lambda _study: None
) -> float:
    """Return reports a second. `command` of a study and a number of threads starts a process that prints its rate."""
    rates = {}
    for processes, threads in LAYOUTS:
        study = f"load-{uuid.uuid4().hex[:8]}"
        create(study)
        begun = command(study, threads)
        workers = [subprocess.Popen(begun, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        rates[processes, threads] = sum(float(worker.communicate()[0]) for worker in workers)
    (processes, threads), best = max(rates.items(), key=lambda item: item[1])
    others = ", ".join(f"{rate:.0f}" for rate in sorted(rates.values()))
    print(f"  {name:<30} {best:7.0f} reports/s   best of {others}: {processes} processes x {threads} threads")
    return best


def worker(storage: str, study: str, threads: int, seconds: float) -> None:
    """One of Optuna's processes: prints the reports a second of all its trials."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    loaded = optuna.load_study(study_name=study, storage=_storage(storage), sampler=_sampler(), pruner=pruner)
    counts: list[int] = []
    barrier, end = threading.Barrier(threads), time.perf_counter()

    def train() -> None:
        nonlocal end
        trial = loaded.ask()
        trial.suggest_float("lr", 1e-4, 1.0, log=True)
        if barrier.wait() == 0:
            end = time.perf_counter() + seconds
        barrier.wait()
        for step in itertools.count(1):
            if time.perf_counter() > end:
                counts.append(step - 1)
                return
            trial.report(0.5 + step * 1e-6, step)
            trial.should_prune()

    running = [threading.Thread(target=train) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print(sum(counts) / seconds)


def _storage(address: str) -> optuna.storages.BaseStorage:
    if address.startswith("grpc://"):
        host, _, port = address.removeprefix("grpc://").partition(":")
        return optuna.storages.GrpcStorageProxy(host=host, port=int(port))
    return optuna.storages.RDBStorage(address, engine_kwargs={"connect_args": _waiting(address)})


def _sqlite_database(home: Path, name: str) -> str:
    """The address of a new database that keeps a write-ahead log: Optuna's reports are faster with it, too."""
    file = home / f"{name}.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    return f"sqlite:///{file}"


def _waiting(address: str) -> dict[str, Any]:
    return {"timeout": 60} if address.startswith("sqlite") else {}


def _sampler() -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=7)


@contextmanager
def grpc_proxy(storage: str, home: Path) -> Iterator[str]:
    port = free_port()
    code = (
        "import optuna; optuna.storages.run_grpc_proxy_server("
        f"optuna.storages.RDBStorage({storage!r}, engine_kwargs={{'connect_args': {_waiting(storage)!r}}}), "
        f"host={HOST!r}, port={port})"
    )
    child = ChildProcess(lambda: [*PYTHON, "-c", code], os.environ, home / "grpc.log")
    child.start()
    try:
        client = optuna.storages.GrpcStorageProxy(host=HOST, port=port)
        client.wait_server_ready(timeout=60)
        yield f"grpc://{HOST}:{port}"
    finally:
        child.kill()


def compare(name: str, create: Callable[[str], str], home: Path, options: argparse.Namespace) -> None:
    """`create` returns the address of a new database of the given name."""
    print(f"\n{name}", flush=True)
    ours = list(measure_paceline(create("paceline"), home, options, mirrored=False))
    if options.mlflow:
        ours += measure_paceline(create("mirrored"), home, options, mirrored=True)
    optunas = create("optuna")
    peers = [measure_optuna("Optuna, the database itself", optunas, options.seconds)]
    if importlib.util.find_spec("grpc") is not None:
        with grpc_proxy(optunas, home) as address:
            peers.append(measure_optuna("Optuna, its gRPC proxy", address, options.seconds))
    else:
        print("  Optuna's gRPC proxy is left out: pip install grpcio protobuf")
    if options.vizier and name == "SQLite":
        peers.append(measure_vizier(options.vizier, create("vizier"), options.seconds))
    for way, per_second in ours:
        print(f"  {way}: {per_second / max(peers):.1f} x as many as the best of the others")


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--trials", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--vizier", metavar="PYTHON", help="an interpreter with google-vizier, to measure that, too")
    parser.add_argument("--mlflow", action="store_true", help="also mirror everything to a real MLflow server")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="paceline-reports-") as directory:
        home = Path(directory)
        if "sqlite" in options.databases:
            compare("SQLite", partial(_sqlite_database, home), home, options)
        if "postgresql" in options.databases:
            with postgresql() as create:
                compare("PostgreSQL", create, home, options)


if __name__ == "__main__":
    main()
