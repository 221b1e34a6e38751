"""A thousand trials that report every second, for ten minutes: lost leases, latencies, and memory.

A lost lease ends the run with the service's error.

    python -m benchmarks.sustained_load [--trials 1000] [--seconds 600] [--database sqlite] [--mlflow]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks.harness.load import Load, report_continuously, running_trials
from benchmarks.recovery import HOST, Paceline, postgresql, until_served
from benchmarks.reports import mlflow, spec
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

SAMPLES = 10


@contextmanager
def database(kind: str, home: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{home / 'paceline.db'}"
        return
    with postgresql() as create:
        yield create("paceline")


async def with_memory(
    load: "asyncio.Task[Load]", process: psutil.Process, seconds: float
) -> tuple[Load, list[tuple[float, float]]]:
    """Return the load's result, and the service's memory as (seconds since the beginning, MB)."""
    began, memory = time.monotonic(), []
    while not load.done():
        memory.append((time.monotonic() - began, process.memory_info().rss / 1e6))
        await asyncio.wait([load], timeout=seconds / SAMPLES)
    return load.result(), memory


async def run(url: str, options: argparse.Namespace) -> None:
    held = await asyncio.to_thread(running_trials, url, spec(options.trials))
    reporting = report_continuously(url, held, options.seconds, pace=options.trials)
    process = next(child for child in psutil.Process().children() if "service.cli" in child.cmdline())
    load, memory = await with_memory(asyncio.create_task(reporting), process, options.seconds)
    print(f"  {len(load.latencies)} reports, {load.per_second:.0f}/s; {load.stopped} stopped; no lease was lost")
    print(f"  median {load.quantile(0.5) * 1e3:.1f} ms, p99 {load.quantile(0.99) * 1e3:.1f} ms")
    print("  memory: " + ", ".join(f"{at:.0f} s {size:.0f} MB" for at, size in memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--mlflow", action="store_true", help="also mirror everything to a real MLflow server")
    options = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paceline-steady-")))
        url = stack.enter_context(database(options.database, home))
        upgrade(Database(url))
        env = {"PACELINE_MLFLOW_URI": stack.enter_context(mlflow(home))} if options.mlflow else {}
        service = Paceline(url, home, **env)
        service.process.start()
        stack.callback(service.process.kill)
        until_served(service.ready, time.perf_counter())
        print(f"{options.database}, {options.trials} trials, each with one report a second")
        asyncio.run(run(f"http://{HOST}:{service.port}", options))


if __name__ == "__main__":
    main()
