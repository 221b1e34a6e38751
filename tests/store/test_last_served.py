"""Which experiment was served last is known without reading all attempts: each claim among several needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import event

from service.store.attempts import last_served
from service.store.sql.database import Database
from tests.conftest import Api
from tests.store.many_trials import experiment_with_trials

pytestmark = pytest.mark.slow

FEW_ROWS, FEW_STEPS = 20, 2_000
MANY_ATTEMPTS = 5_000


def test_the_newest_attempt_of_each_experiment_counts(service: Api) -> None:
    """One that runs by its start, one that has ended by its end; an experiment without any is left out."""
    names = [service.create()["name"] for _ in range(4)]
    ids = {name: service.get(f"/v1/experiments/{name}")["id"] for name in names}
    for name in names[:2]:
        ended = service.ask(name)
        assert ended
        ended.report(accuracy=0.5)
        ended.finish()
    running = service.ask(names[1])
    assert running
    with service.app.state.context.database.read() as session:
        found = last_served(session, [ids[name] for name in names[:3]])
    [attempt] = service.get(f"/v1/trials/{running.trial}")["attempts"]
    assert found.keys() == {ids[names[0]], ids[names[1]]}
    assert found[ids[names[1]]] == datetime.fromisoformat(attempt["started_at"])


@pytest.mark.databases("sqlite", "postgresql")
def test_it_is_found_without_reading_the_other_attempts(service: Api) -> None:
    context = service.app.state.context
    old, new = (experiment_with_trials(context, MANY_ATTEMPTS) for _ in range(2))
    with read_rows(context.database) as count, context.database.read() as session:
        assert last_served(session, [old, new]).keys() == {old, new}
    assert count() < (FEW_STEPS if context.database.is_sqlite else FEW_ROWS)


@contextmanager
def read_rows(database: Database) -> Iterator[Any]:
    """Yield a function that returns how much the queries have read: rows, or steps of SQLite's virtual machine."""
    counts: list[int] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        driver = connection.connection.driver_connection
        if database.is_sqlite:
            driver.set_progress_handler(lambda: counts.append(1), 1)
        elif not statement.startswith("explain"):
            rows = driver.execute(f"explain (analyze, format json) {statement}", parameters).fetchall()
            counts.append(_read(rows[0][0][0]["Plan"]))

    event.listen(database.engine, "before_cursor_execute", explain)
    yield lambda: sum(counts)
    event.remove(database.engine, "before_cursor_execute", explain)


def _read(plan: dict[str, Any]) -> int:
    """The rows of all scans, with those that a filter removed."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if "Scan" in plan["Node Type"] else 0
    return int(own * plan["Actual Loops"]) + sum(map(_read, plan.get("Plans", ())))
