"""A PostgreSQL standby takes over that lacks the last commits, and then stores as many others."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, inspect, text

from service.runtime.proposals import Proposals
from tests.conftest import Api

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)]

END_THE_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""
MODEL = {"search": {"sampler": "tpe", "seed": 7, "options": {"n_startup_trials": 1}}}


@contextmanager
def lost_commits(service: Api) -> Iterator[None]:
    """What is stored within this block is lost at its end, with all connections."""
    engine = service.app.state.context.database.engine
    tables = inspect(engine).get_table_names()
    with engine.begin() as connection:
        connection.execute(text("create schema standby"))
        for table in tables:
            connection.execute(text(f'create table standby."{table}" as table "{table}"'))
    yield
    with engine.begin() as connection:
        connection.execute(text(END_THE_OTHERS))
        _restore(connection, tables)


def _restore(connection: Connection, tables: list[str]) -> None:
    connection.execute(text("set local session_replication_role = replica"))  # no foreign keys meanwhile
    connection.execute(text("truncate " + ", ".join(f'"{table}"' for table in tables)))
    for table in tables:
        connection.execute(text(f'insert into "{table}" select * from standby."{table}"'))  # noqa: S608 - the names of our tables


def test_after_a_failover_nothing_is_known_of_trials_that_were_lost(service: Api) -> None:
    experiment = service.create(**MODEL)
    path, context = f"/v1/experiments/{experiment['name']}", service.app.state.context
    first, second = service.ask(experiment["name"]), service.ask(experiment["name"])
    assert first
    assert second
    with lost_commits(service):
        first.report(accuracy=0.9)
        first.finish()
        learned = context.proposals.propose(experiment["id"], 2)
        before = service.get(path)
        assert before["counts"]["completed"] == 1
        lost = service.events(experiment["name"])
    second.report(accuracy=0.1)
    second.finish("stopped")
    assert len(service.events(experiment["name"])) == len(lost)
    assert service.get(path)["counts"]["completed"] == 0
    third = service.ask(experiment["name"])
    assert third
    assert third.shown()["params"] == Proposals(context.database).propose(experiment["id"], 2).params
    assert third.shown()["params"] != learned.params


def test_a_follower_resumes_when_events_were_lost(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    path = f"/v1/experiments/{name}/events"
    with service.http.stream("GET", path) as stream:
        ids = (line for line in stream.iter_lines() if line.startswith("id: "))
        with lost_commits(service):
            held.report(accuracy=0.9)
            held.finish()
            seen = len(service.events(name))
            while next(ids) != f"id: {seen}":
                pass
        assert list(ids) == []
    service.post(f"/v1/experiments/{name}/stop")
    held.finish("stopped")
    resumed = service.http.get(path, headers={"Last-Event-ID": str(seen)})
    assert f"id: {len(service.events(name))}\n" in resumed.text
