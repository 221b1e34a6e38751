"""The cost of a call by the size and number of experiments: median milliseconds, one caller at a time.

Trials and reports are written directly into the database, as the service would store them. Proposals are not
measured here (the sampler is `random`); see `benchmarks/suggest.py`.

    python -m benchmarks.growth [--trials 10 1000 10000] [--experiments 1000] [--databases sqlite postgresql]
"""

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from benchmarks.recovery import HOST, Paceline, postgresql, until_served
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from service.store.tables import EventRow, ExperimentRow, MilestoneRow, ReportRow, TrialRow

REPORTS, RUNG_STEPS, CALLS = 20, (1, 3, 9), 60
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TRIALS_OF_EACH = 10
"""Trials of each experiment, when there are many experiments."""


def spec(name: str, trials: int) -> dict[str, Any]:
    return {
        "name": name,
        "space": {f"x{i}": {"type": "float", "low": 0.0, "high": 1.0} for i in range(10)},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "random", "seed": 7},
        "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
        "trainer": {"kind": "external"},
        "limits": {"max_trials": trials + 10_000, "parallelism": 1000},
    }


def fill(database: Database, experiment_id: str, trials: int) -> None:
    """Insert finished trials with their curves, milestones and events."""
    ids = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(trials)]
    with database.write() as session:
        experiment = session.get_one(ExperimentRow, experiment_id)
        for table, rows in _rows(experiment_id, ids, experiment.event_count).items():
            session.execute(insert(table), rows)
        experiment.trial_count = trials
        experiment.event_count += trials * (REPORTS + 2)


def _rows(experiment_id: str, ids: list[str], event: int) -> dict[type[Any], list[dict[str, Any]]]:
    rows: dict[type[Any], list[dict[str, Any]]] = {TrialRow: [], ReportRow: [], MilestoneRow: [], EventRow: []}

    def add_event(kind: str, trial: str, at: datetime, data: dict[str, Any]) -> None:
        nonlocal event
        event += 1
        facts = {"experiment_id": experiment_id, "seq": event, "kind": kind, "trial_id": trial, "data": data, "at": at}
        rows[EventRow].append(facts)

    for number, trial in enumerate(ids):
        at = BEGAN + timedelta(seconds=number)
        add_event("trial.running", trial, at, {"number": number})
        for sequence in range(REPORTS):
            value = ((number * 7919) % 1009) / 1009 * (1 - 0.8**sequence)
            metrics = {"accuracy": value, "loss": 1 - value}
            facts = {"step": sequence, "attempt": 1, "sequence": sequence, "metrics": metrics, "value": value, "at": at}
            rows[ReportRow].append({"trial_id": trial, **facts})
            add_event("report", trial, at, {"attempt": 1, "sequence": sequence, "step": sequence, "metrics": metrics})
            if sequence in RUNG_STEPS:
                key = {"experiment_id": experiment_id, "milestone": sequence, "trial_id": trial, "number": number}
                rows[MilestoneRow].append({**key, "value": value, "change": 0})
        add_event("trial.completed", trial, at, {"number": number})
        rows[TrialRow].append(_trial(experiment_id, trial, number, value, event, at))
    return rows


def _trial(experiment_id: str, trial: str, number: int, value: float, event: int, at: datetime) -> dict[str, Any]:
    return {
        "id": trial,
        "experiment_id": experiment_id,
        "number": number,
        "params": {f"x{i}": ((number + i) * 7907 % 1013) / 1013 for i in range(10)},
        "origin": "sampler",
        "status": "completed",
        "value": value,
        "last_step": REPORTS - 1,
        "judged_step": REPORTS - 1,
        "attempt_count": 1,
        "changed_at_event": event,
        "created_at": at,
        "started_at": at,
        "ended_at": at,
    }


class Caller:
    """Times calls of a running service."""

    def __init__(self, service: Paceline) -> None:
        self._http = service.http
        self.found: dict[str, list[float]] = {}

    def call(self, name: str, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        began = time.perf_counter()
        answer = self._http.request(method, path, json=body, headers=headers)
        self.found.setdefault(name, []).append((time.perf_counter() - began) * 1e3)
        answer.raise_for_status()
        return json.loads(answer.content) if answer.content.startswith((b"{", b"[")) else None

    def train(self, name: str) -> None:
        """Run one trial from ask to finish."""
        held = self.call("ask", "POST", f"/v1/experiments/{name}/ask")
        path, token = f"/v1/trials/{held['trial']}", held["lease"]["token"]
        for sequence in range(10):
            report = {"sequence": sequence, "metrics": {"accuracy": 0.99, "loss": 0.01}}
            self.call("report", "POST", f"{path}/reports", {"reports": [report]}, token)
        self.call("finish", "POST", f"{path}/finish", {"outcome": "completed"}, token)

    def read_all(self, paths: dict[str, str]) -> None:
        for name, path in paths.items():
            for _ in range(CALLS // 3):
                self.call(name, "GET", path)


@contextmanager
def serving(database_url: str, home: Path) -> Iterator[tuple[Paceline, Database]]:
    database = Database(database_url)
    upgrade(database)
    service = Paceline(database_url, home)
    service.process.start()
    try:
        until_served(service.ready, time.perf_counter())
        yield service, database
    finally:
        service.process.kill()
        database.close()


def measure_trials(database_url: str, home: Path, trials: int) -> dict[str, list[float]]:
    """Measure one experiment with many finished trials."""
    with serving(database_url, home) as (service, database):
        created = service.http.post("/v1/experiments", json=spec("large", trials)).raise_for_status().json()
        fill(database, created["id"], trials)
        caller = Caller(service)
        for _ in range(CALLS // 3):
            caller.train("large")
        caller.read_all(
            {
                "GET /experiments/x": "/v1/experiments/large",
                "GET /best": "/v1/experiments/large/best",
                "GET /importance": "/v1/experiments/large/importance",
                "GET /trials": "/v1/experiments/large/trials?limit=50",
                "GET /trials?sort=value": "/v1/experiments/large/trials?sort=value&limit=50",
                "  failed ones alone": "/v1/experiments/large/trials?sort=value&status=failed&limit=50",
                "GET /events": f"/v1/experiments/large/events?follow=false&limit=100&after={trials * REPORTS // 2}",
            }
        )
    return caller.found


def measure_experiments(database_url: str, home: Path, experiments: int) -> dict[str, list[float]]:
    """Measure many running experiments with few trials each."""
    with serving(database_url, home) as (service, database):
        for number in range(experiments):
            document = spec(f"one-{number}", TRIALS_OF_EACH) | {
                "trainer": {"kind": "torch", "entrypoint": "train:train_fn"}
            }
            created = service.http.post("/v1/experiments", json=document).raise_for_status().json()
            fill(database, created["id"], TRIALS_OF_EACH)
        caller = Caller(service)
        for _ in range(CALLS // 6):
            caller.train("one-0")
        for number in range(CALLS // 3):
            nodes = [{"total": {"CPU": 8}, "free": {"CPU": 8}}]
            body = {"request_id": f"claim-{number}", "nodes": nodes}
            caller.call("claim", "POST", "/v1/agents/here/claim", body)
        caller.read_all({"GET /experiments": "/v1/experiments?limit=50", "GET /metrics": "/metrics"})
    return caller.found


def show(title: str, columns: dict[str, dict[str, list[float]]]) -> None:
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    print(f"\n{title:<28}" + "".join(f"{column:>14}" for column in columns))
    for name in names:
        medians = [statistics.median(found[name]) if name in found else float("nan") for found in columns.values()]
        print(f"  {name:<26}" + "".join(f"{median:11.1f} ms" for median in medians), flush=True)


def measure(name: str, create: Callable[[str], str], home: Path, options: argparse.Namespace) -> None:
    by_trials = {f"{count:,} trials": measure_trials(create(f"t{count}"), home, count) for count in options.trials}
    show(f"{name}, one experiment", by_trials)
    if options.experiments:
        counts = (10, options.experiments)
        many = {f"{count:,} of them": measure_experiments(create(f"e{count}"), home, count) for count in counts}
        show(f"{name}, many experiments", many)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-growth-") as directory:
        home = Path(directory)
        print(f"medians of {CALLS // 3} to {CALLS * 3} calls to {HOST}")
        if "sqlite" in options.databases:
            measure("SQLite", lambda name: f"sqlite:///{home / name}.db", home, options)
        if "postgresql" in options.databases:
            with postgresql() as create:
                measure("PostgreSQL", create, home, options)


if __name__ == "__main__":
    main()
