"""Concurrent reports share a transaction and do not affect each other."""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from service.operations.reports import curve, ingest
from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.runtime.context import Context
from tests.conftest import Api, Held
from trainer.wire import Answer, Report

pytestmark = pytest.mark.slow

TRIALS = 8


def post(held: Held, report: dict[str, Any]) -> int:
    path = f"/v1/trials/{held.trial}/reports"
    return held.api.http.post(path, headers=held.headers, json={"reports": [report]}).status_code


@pytest.fixture
def in_one_batch(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[tuple[Held, dict[str, Any]]]], list[int]]:
    """Post all while a first, delayed one is stored, so that one transaction stores them; returns the statuses."""

    def send(calls: list[tuple[Held, dict[str, Any]]]) -> list[int]:
        reporting, real = service.app.state.reporting, ingest._ingest

        def wait_for_all(context: Context, first: Sequence[ReportBatch], lock_seconds: float) -> Any:
            monkeypatch.setattr(ingest, "_ingest", real)
            while reporting.pending_count < len(calls) - len(first):
                pass
            return real(context, first, lock_seconds)

        monkeypatch.setattr(ingest, "_ingest", wait_for_all)
        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda call: post(*call), calls))

    return send


def test_concurrent_reports_share_commits(service: Api, in_one_batch: Any) -> None:
    name = service.create()["name"]
    held = [service.ask(name) for _ in range(TRIALS)]
    commits: list[Any] = []

    def record(connection: Any) -> None:
        if threading.current_thread().name == "reporting":  # the background loops commit, too
            commits.append(connection)

    event.listen(service.app.state.context.database.engine, "commit", record)
    assert in_one_batch([(one, {"sequence": 0, "metrics": {"accuracy": 0.5}}) for one in held]) == [200] * TRIALS
    assert 0 < len(commits) < TRIALS
    events = service.events(name)
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert sum(one["kind"] == "report" for one in events) == TRIALS


def test_refused_batches_do_not_affect_the_others(service: Api, in_one_batch: Any) -> None:
    name = service.create(step_metric="epoch")["name"]
    wrong, late, *good = [held for _ in range(TRIALS) if (held := service.ask(name))]
    late.fail()
    other = service.ask(service.create()["name"])
    assert other
    fine = {"sequence": 0, "metrics": {"accuracy": 0.5, "epoch": 1}}
    calls = [(wrong, {"sequence": 0, "metrics": {"accuracy": 0.5}}), (late, fine), (other, fine)]
    assert in_one_batch([*calls, *((one, fine) for one in good)]) == [422, 409, 200, *([200] * len(good))]
    counts = [len(service.get(f"/v1/trials/{one.trial}/reports")["items"]) for one in (wrong, late, other, *good)]
    assert counts == [0, 0, 1, *([1] * len(good))]


def test_a_batch_that_fails_does_not_affect_the_others(
    service: Api, in_one_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = service.create()["name"]
    held = [one for _ in range(TRIALS) if (one := service.ask(name))]
    add, poisoned = curve.add_point, held[3].trial

    def fail_at_one(holder: Any, *arguments: Any) -> Any:
        if holder.trial.id == poisoned:
            raise ZeroDivisionError
        return add(holder, *arguments)

    monkeypatch.setattr(ingest, "add_point", fail_at_one)
    statuses = in_one_batch([(one, {"sequence": 0, "metrics": {"accuracy": 0.5}}) for one in held])
    assert statuses == [500 if one.trial == poisoned else 200 for one in held]
    events = service.events(name)
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert sum(one["kind"] == "report" for one in events) == TRIALS - 1


def test_the_statements_do_not_depend_on_the_number_of_reports(service: Api) -> None:
    """PostgreSQL prepares each statement by its text, and no statement is executed per trial."""
    name = service.create(early_stopping={"rule": "asha", "min_step": 2})["name"]
    held = [one for _ in range(TRIALS) if (one := service.ask(name))]
    context: Context = service.app.state.context
    mine, statements = threading.get_ident(), list[str]()

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.get_ident() == mine:
            statements.append(statement)

    def statements_for(holders: Sequence[Held]) -> list[str]:
        statements.clear()
        reports = [Report(sequence=0, metrics={"accuracy": 0.5})]
        calls = [ReportBatch(one.trial, one.assignment["lease"]["token"], reports) for one in holders]
        assert ingest_reports(context, calls) == [Answer()] * len(calls)
        return [re.sub(r"IN \([?, ]+\)", "IN (...)", statement) for statement in statements]

    event.listen(context.database.engine, "before_cursor_execute", record)
    few, many = statements_for(held[:2]), statements_for(held[2:])
    assert few
    assert many == few
