"""Latency, CPU time and memory of a service whose experiment has many finished trials of ten parameters.

Trials and their reports are written directly into the database, as the service would store them. The first ask after a
start shows how long the search takes to load them. Then trials run one after the other. Each reports only at the three
rungs of ASHA, so that every report needs a decision. Between a trial's end and the next ask is a pause, in which the
service computes a proposal (TPE) ahead. CPU time is that of the whole service.

    python -m benchmarks.large_experiment [--trials 10 1000 10000] [--runs 20] [--sampler tpe] [--promote]
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.growth import RUNG_STEPS, fill, spec
from benchmarks.recovery import Paceline, cpu_seconds, until_served
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

PAUSE_SECONDS = 0.3
RUNS = 20
NAME, FIRST = "large", "first ask"


@dataclass
class Costs:
    """Milliseconds of each call: its latency, and the service's CPU time."""

    latency: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        cpu, began = cpu_seconds(), time.perf_counter()
        yield
        self.latency[name].append((time.perf_counter() - began) * 1e3)
        self.cpu[name].append((cpu_seconds() - cpu) * 1e3)

    def show(self) -> None:
        for name, latency in self.latency.items():
            cpu = statistics.mean(self.cpu[name])  # the resolution of CPU time is 10 ms
            print(f"  {name:<35} {statistics.median(latency):7.1f} ms     {cpu:6.1f} ms of CPU time", flush=True)


def memory_mb() -> float:
    """Return the memory of the service, which is this process's only child."""
    return sum(child.memory_info().rss for child in psutil.Process().children(recursive=True)) / 2**20


def train(service: Paceline, costs: Costs, asked: str = "ask, after a pause") -> None:
    with costs.of(asked):
        held = service.http.post(f"/v1/experiments/{NAME}/ask").raise_for_status().json()
    path, headers = f"/v1/trials/{held['trial']}", {"Authorization": f"Bearer {held['lease']['token']}"}
    for sequence, step in enumerate(RUNG_STEPS):
        report = {"sequence": sequence, "step": step, "metrics": {"accuracy": 2.0, "loss": 0.01}}
        with costs.of("report, decided at a rung"):
            service.http.post(f"{path}/reports", headers=headers, json={"reports": [report]}).raise_for_status()
    with costs.of("finish, and the next proposal"):
        service.http.post(f"{path}/finish", headers=headers, json={"outcome": "completed"}).raise_for_status()
        time.sleep(PAUSE_SECONDS)


def measure_service(trials: int, runs: int, sampler: str = "tpe", **rule: Any) -> None:
    print(f"\nthe service, {trials} finished trials", flush=True)
    with tempfile.TemporaryDirectory(prefix="paceline-large-") as directory:
        home = Path(directory)
        url = f"sqlite:///{home / 'paceline.db'}"
        database = Database(url)
        upgrade(database)
        service = Paceline(url, home)
        try:
            _fill(service, database, trials, sampler, rule)
            _measure(service, runs)
        finally:
            service.process.kill()
            database.close()


def _fill(service: Paceline, database: Database, trials: int, sampler: str, rule: dict[str, Any]) -> None:
    """Fill the database; the service is stopped afterwards."""
    service.process.start()
    until_served(service.ready, time.perf_counter())
    document = spec(NAME, trials)
    document["search"]["sampler"] = sampler
    document["early_stopping"] |= rule
    document["limits"]["parallelism"] = 1  # so that nothing is computed ahead before a trial has ended
    created = service.http.post("/v1/experiments", json=document).raise_for_status().json()
    fill(database, created["id"], trials)
    service.process.kill()


def _measure(service: Paceline, runs: int) -> None:
    began = time.perf_counter()
    service.process.start()
    ready = until_served(service.ready, began)
    train(service, first := Costs(), FIRST)
    [asked] = first.latency[FIRST]
    first_answer = f"{ready + asked / 1e3:7.2f} s      ({ready:.2f} s of it until ready)"
    print(f"  {'start to the first answered ask':<35} {first_answer}", flush=True)
    costs = Costs()
    for _ in range(runs):
        train(service, costs)
    costs.show()
    print(f"  {'memory (RSS)':<35} {memory_mb():7.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--runs", type=int, default=RUNS, help="number of trials to run")
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--promote", action="store_true", help="ASHA with promotion")
    options = parser.parse_args()
    for trials in options.trials:
        measure_service(trials, options.runs, options.sampler, promote=options.promote)


if __name__ == "__main__":
    main()
