"""No call scans a whole table: the queries of each call are recorded, and the database explains their plans."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from service.api.experiments.replay import ReplayRequest
from service.operations.early_stopping.replay import replay_experiment
from service.store.tables import Base
from tests.conftest import Api, Held
from tests.store.recorded_statements import recorded

pytestmark = pytest.mark.slow

# The tables that grow with trials and reports. Experiments and agents are few.
GROWING = {"trials", "attempts", "reports", "milestones", "decisions", "checkpoints", "events", "mirror_runs"}

# Partial indexes, of running attempts only.
OF_THE_LIVING = ("ix_attempts_expiry", "uq_attempts_living")


@pytest.fixture
def engine(service: Api) -> Engine:
    found: Engine = service.app.state.context.database.engine
    return found


@pytest.fixture
def held(service: Api) -> Held:
    return amid_others(service, {"rule": "asha", "reduction_factor": 2})


def amid_others(service: Api, early_stopping: dict[str, Any], **changes: Any) -> Held:
    """One running trial beside a few others that have reports, decisions and ends."""
    name = service.create(early_stopping=early_stopping, **changes)["name"]
    for value in (0.1, 0.5, 0.3):
        one = service.ask(name)
        assert one
        for _ in range(4):
            one.report(accuracy=value, checkpoint=f"/{value}")
        one.finish()
    held = service.ask(name)
    assert held
    held.report(accuracy=0.2)
    return held


def test_each_foreign_key_leads_an_index() -> None:
    """The database looks for the rows of each row that is deleted, one at a time."""
    tables = Base.metadata.tables.values()
    keys = {(table.name, key.parent.name) for table in tables for key in table.foreign_keys}
    leading = {(table.name, next(iter(table.primary_key.columns)).name) for table in tables}
    leading |= {(table.name, index.columns[0].name) for table in tables for index in table.indexes}
    assert not keys - leading


def tables_read_whole(connection: Connection, statement: str, parameters: Any) -> set[str]:
    if statement.endswith("WHERE 0 = 1"):  # a background loop's, for no row; SQLite plans it as a scan
        return set()
    if connection.dialect.name == "sqlite":
        plan = [row[3] for row in connection.exec_driver_sql(f"explain query plan {statement}", parameters)]
        scans = [
            line for line in plan if line.startswith("SCAN ") and not any(index in line for index in OF_THE_LIVING)
        ]
        return {line.split()[1] for line in scans} & GROWING
    # PostgreSQL rightly scans small tables; with scans disabled, a scan means that no index fits.
    connection.exec_driver_sql("set local enable_seqscan = off")
    plan = [row[0] for row in connection.exec_driver_sql(f"explain {statement}", parameters)]
    return {table for line in plan for table in re.findall(r"Seq Scan on (\w+)", line)} & GROWING


def replay(held: Held, name: str) -> None:
    """As the route does it in another process, whose queries are not seen here."""
    rule = ReplayRequest.model_validate({"early_stopping": {}}).early_stopping
    replay_experiment(held.api.app.state.context.database, name, rule)


def report_a_rung(held: Held) -> None:
    held.report(accuracy=0.9)


def by_value(held: Held, name: str, query: str) -> None:
    """The first page and the one after it."""
    path = f"/v1/experiments/{name}/trials?sort=value&limit=1{query}"
    held.api.get(f"{path}&cursor={held.api.get(path)['next_cursor']}")


CALLS: dict[str, Callable[[Held, str], Any]] = {
    "report": lambda held, _: report_a_rung(held),
    "heartbeat": lambda held, _: held.heartbeat(),
    "finish with next": lambda held, _: held.finish(next=True),
    "ask": lambda held, name: held.api.ask(name),
    "claim": lambda held, _: held.api.claim(status=204),
    "experiment": lambda held, name: held.api.get(f"/v1/experiments/{name}"),
    "experiments": lambda held, _: held.api.get("/v1/experiments"),
    "best": lambda held, name: held.api.get(f"/v1/experiments/{name}/best"),
    "events": lambda held, name: held.api.get(f"/v1/experiments/{name}/events?follow=false&after=5"),
    "trials": lambda held, name: held.api.get(f"/v1/experiments/{name}/trials"),
    "trials by status": lambda held, name: held.api.get(f"/v1/experiments/{name}/trials?status=completed"),
    "trials by value": lambda held, name: by_value(held, name, ""),
    "trials by status and value": lambda held, name: by_value(held, name, "&status=completed"),
    "trial": lambda held, _: held.api.get(f"/v1/trials/{held.trial}"),
    "plan": lambda held, name: held.api.get(f"/v1/experiments/{name}/checkpoints/plan"),
    "checkpoints": lambda held, _: held.api.get(f"/v1/trials/{held.trial}/checkpoints"),
    "reports": lambda held, _: held.api.get(f"/v1/trials/{held.trial}/reports"),
    "decisions": lambda held, _: held.api.get(f"/v1/trials/{held.trial}/decisions"),
    "change": lambda held, name: held.api.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trials": 20}}),
    "enqueue": lambda held, name: held.api.post(
        f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.5}}, headers={"Idempotency-Key": "once"}
    ),
    "retry": lambda held, _: held.api.post(f"/v1/trials/{held.trial}/retry", 409),
    "stop": lambda held, name: held.api.post(f"/v1/experiments/{name}/stop"),
    "attempts of an agent": lambda held, _: held.api.get("/v1/agents/here/attempts"),
    "metrics": lambda held, _: held.api.http.get("/metrics"),
    "replay": replay,
}


READS = (
    "experiment",
    "experiments",
    "best",
    "events",
    "trials",
    "trials by status",
    "trials by value",
    "trials by status and value",
    "trial",
    "plan",
    "checkpoints",
    "reports",
    "decisions",
    "attempts of an agent",
    "metrics",
    "replay",
)
"""The calls change nothing, so one experiment serves all of them."""


@pytest.mark.parametrize("calls", [READS, *((call,) for call in CALLS if call not in READS)], ids=", ".join)
def test_no_call_reads_a_growing_table_whole(held: Held, engine: Engine, calls: tuple[str, ...]) -> None:
    name = held.assignment["experiment"]
    for call in calls:
        with recorded(engine) as queries:
            CALLS[call](held, name)
        nothing_is_read_whole(engine, queries)


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "hyperband", "max_step": 9},
        {"rule": "median", "n_startup_trials": 1, "grace_steps": 9},
        {"rule": "wilcoxon", "n_startup_steps": 2, "grace_steps": 9},
        {"rule": "patient", "patience": 0, "wrapped_rule": {"rule": "asha"}, "grace_steps": 9},
    ],
    ids=lambda rule: rule["rule"],
)
def test_no_rule_reads_a_growing_table_whole(service: Api, engine: Engine, rule: dict[str, Any]) -> None:
    held = amid_others(service, rule)
    with recorded(engine) as queries:
        held.report(accuracy=0.1)
        held.report(accuracy=0.1)
        held.finish()
        service.http.patch(
            f"/v1/experiments/{held.assignment['experiment']}", json={"early_stopping": {"rule": "asha"}}
        )
    assert any("milestones" in query for query, _ in queries)
    nothing_is_read_whole(engine, queries)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("query", ["", "&status=completed"])
def test_the_best_trials_are_found_in_their_order(service: Api, engine: Engine, direction: str, query: str) -> None:
    """At most the trials with one value are sorted: there may be thousands of others."""
    held = amid_others(service, {"rule": "none"}, objectives=[{"metric": "accuracy", "direction": direction}])
    with recorded(engine) as queries:
        by_value(held, held.assignment["experiment"], query)
    pages = [(statement, values) for statement, values in queries if "ORDER BY trials.value" in statement]
    assert len(pages) == 2
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # PostgreSQL prefers to sort a few rows
            connection.exec_driver_sql("set local enable_sort = off; set local enable_bitmapscan = off")
        plans = [plan_of(connection, statement, values) for statement, values in pages]
    assert all("_value_number" in plan for plan in plans)
    assert not [plan for plan in plans if "FOR ORDER BY" in plan]


@pytest.mark.parametrize("path", ["/v1/experiments?limit=1", "/v1/experiments?limit=1&status=running"])
def test_experiments_are_found_in_their_order_and_the_best_of_each(service: Api, engine: Engine, path: str) -> None:
    """No experiment is sorted, and of its trials at most those with one value."""
    amid_others(service, {"rule": "none"})
    amid_others(service, {"rule": "none"}, objectives=[{"metric": "accuracy", "direction": "minimize"}])
    with recorded(engine) as queries:
        service.get(f"{path}&cursor={service.get(path)['next_cursor']}")
    pages = [one for one in queries if "ORDER BY experiments.created_at DESC" in one[0]]
    bests = [one for one in queries if "ORDER BY trials.value" in one[0]]
    assert (len(pages), len(bests)) == (2, 2)
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # PostgreSQL prefers to sort a few rows
            connection.exec_driver_sql("set local enable_sort = off; set local enable_bitmapscan = off")
        assert all("created_at_id" in plan_of(connection, *one) for one in pages)
        assert not [one for one in pages if "FOR ORDER BY" in plan_of(connection, *one)]
        assert all("status_value_number" in plan_of(connection, *one) for one in bests)


def test_paused_trials_are_found_by_an_index_of_paused_trials(service: Api, engine: Engine) -> None:
    """When no other trial can come, all paused trials are considered."""
    limits = {"max_trials": 2, "parallelism": 2}
    name = service.create(early_stopping={"rule": "asha", "promote": True}, limits=limits)["name"]
    for value in (0.5, 0.3):
        held = service.ask(name)
        assert held
        held.report(accuracy=value)
        with recorded(engine) as queries:
            assert held.finish("stopped")["status"] in {"paused", "queued"}
    nothing_is_read_whole(engine, queries)
    looked = [
        (query, values) for query, values in queries if "paused_milestone >" in query or "paused_value DESC" in query
    ]
    assert {query.partition("ORDER BY")[2].split()[0] for query, _ in looked} == {
        "trials.paused_milestone",
        "trials.paused_value",
    }
    with engine.connect() as connection:
        assert all("ix_trials_paused" in plan_of(connection, query, values) for query, values in looked)


def plan_of(connection: Connection, statement: str, parameters: Any) -> str:
    explain = "explain query plan" if connection.dialect.name == "sqlite" else "explain"
    if explain == "explain":
        connection.exec_driver_sql("set local enable_seqscan = off")
    return str(connection.exec_driver_sql(f"{explain} {statement}", parameters).all())


def nothing_is_read_whole(engine: Engine, queries: list[tuple[str, Any]]) -> None:
    assert queries
    with engine.connect() as connection:
        read_whole = {query: tables_read_whole(connection, query, values) for query, values in queries}
    assert not {query: tables for query, tables in read_whole.items() if tables}
