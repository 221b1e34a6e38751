"""A changed rule takes over what was reported, without a lock on the experiment while all reports are read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import select

from search.early_stopping import AT_END
from service.operations.early_stopping.recorded_milestones import MAX_LOCKED_EVENTS, RecordedMilestones, catch_up
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.locked_experiment import lock_named
from service.runtime.caches.experiment_caches import spec_of
from service.store.events import EventOfKind, events_of_kinds
from service.store.tables import MilestoneRow
from tests.conftest import Api, Held
from tests.history_reads import counted_reads
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

ASHA = {"rule": "asha", "min_step": 1, "reduction_factor": 2}


def started(service: Api, name: str, values: list[float]) -> Held:
    held = service.ask(name)
    assert held
    for value in values:
        held.report(accuracy=value)
    return held


def milestones(service: Api) -> list[tuple[int, int, float, int]]:
    with service.app.state.context.database.read() as session:
        rows = session.execute(
            select(MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool)
        )
        return sorted((number, at, value, pool) for number, at, value, pool in rows)


def test_reports_that_come_while_the_history_is_read_count(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name = service.create()["name"]
    running = [started(service, name, [0.1, 0.2, 0.3]), started(service, name, [0.4])]
    read_after = []

    def read_slowly(*arguments: Any) -> None:
        catch_up(*arguments)
        running[1].report(accuracy=0.5)
        running[0].finish()
        running.append(started(service, name, [0.7, 0.8]))

    def note(*arguments: Any, after: int) -> Iterator[EventOfKind]:
        read_after.append(after)
        return events_of_kinds(*arguments, after=after)

    monkeypatch.setattr(RecordedMilestones, "is_behind", lambda known, *_: known.last_event == 0)
    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.catch_up", read_slowly)
    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.events_of_kinds", note)
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": ASHA}).raise_for_status()
    first, rest = read_after
    assert first == 0
    assert rest > 0
    found = milestones(service)
    assert {(number, milestone) for number, milestone, *_ in found} == {(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)}
    monkeypatch.undo()
    with service.app.state.context.database.write() as session:
        locked = lock_named(session, name)
        rebuild_milestones(locked, spec_of(locked.experiment))
    assert milestones(service) == found


def test_calls_that_need_the_same_history_read_it_once(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name, reads = service.create()["name"], counted_reads(monkeypatch)
    running = started(service, name, [])
    points = [{"sequence": at, "step": at + 1, "metrics": {"accuracy": 0.5}} for at in range(MAX_LOCKED_EVENTS + 200)]
    for at in range(0, len(points), 600):
        running.call("reports", body={"reports": points[at : at + 600]})
    together, missing_first = Barrier(2), []

    def read_together(*arguments: Any) -> None:
        missing_first.append(arguments)
        if len(missing_first) <= together.parties:
            together.wait(PATIENCE_SECONDS)
        catch_up(*arguments)

    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.catch_up", read_together)
    change = partial(service.http.patch, f"/v1/experiments/{name}", json={"early_stopping": ASHA})
    with ThreadPoolExecutor(2) as threads:
        for answer in [threads.submit(change), threads.submit(change)]:
            answer.result().raise_for_status()
    assert len(points) <= reads.unlocked < 2 * len(points)
    assert len(milestones(service)) > 0


def test_the_value_at_the_end_is_the_best_report_where_that_counts_also_under_a_changed_rule(service: Api) -> None:
    weighted = {"rule": "hyperband", "min_step": 1, "max_step": 9, "reduction_factor": 3, "weighted": True}
    best = [{"metric": "accuracy", "direction": "maximize", "report": "best"}]
    name = service.create(objectives=best, early_stopping=weighted)["name"]
    started(service, name, [0.5, 0.9, 0.6]).finish()
    assert [value for _, at, value, _ in milestones(service) if at == AT_END] == [0.9]
    for rule in ({"rule": "none"}, weighted):
        service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": rule}).raise_for_status()
    assert [value for _, at, value, _ in milestones(service) if at == AT_END] == [0.9]
