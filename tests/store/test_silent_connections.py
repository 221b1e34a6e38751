"""A connection on which PostgreSQL is silent, although its other end is there."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from service.store.sql import database as store
from service.store.sql import deadline_connection
from service.store.sql.database import Database, is_outage, lift_statement_timeout
from service.store.sql.deadline_connection import DeadlineConnection
from service.store.sql.schema_upgrade import _locked_schema
from tests.databases import postgres_database
from tests.silent_proxy import Clock, SilentProxy, clock, until_noticed

__all__ = ["clock"]

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(postgres: str) -> Iterator[SilentProxy]:
    with postgres_database(postgres) as url, SilentProxy(url).passing() as proxy:
        yield proxy


@pytest.fixture
def database(proxy: SilentProxy) -> Iterator[Database]:
    database = Database(proxy.url)
    yield database
    database.close()


Connection = psycopg.Connection[Any]


def stream(connection: Connection) -> None:
    with connection.cursor("some_rows") as cursor:
        cursor.fetchone()


def insert_many(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("select %s", [(1,), (2,)], returning=True)


def copy(connection: Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("copy (select 1) to stdout") as rows:
        rows.read()


OPERATIONS: dict[str, Callable[[Connection], object]] = {
    "a statement": lambda connection: connection.execute("select 1"),
    "a commit": lambda connection: connection.commit(),
    "a rollback": lambda connection: connection.rollback(),
    "many statements": insert_many,
    "a cursor at the server": stream,
    "a copy": copy,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_of_psycopg_notices_silence_and_closes_the_connection(
    operation: str, proxy: SilentProxy
) -> None:
    dsn = proxy.url.replace("postgresql+psycopg", "postgresql")
    with DeadlineConnection.connect(dsn) as connection:
        connection.execute("select 1")  # begins a transaction
        proxy.lose_all()
        connection.max_silence = 0.01
        with pytest.raises(psycopg.OperationalError, match=r"no answer for 0\.01 s"):
            OPERATIONS[operation](connection)
        assert connection.closed


def test_silence_in_the_middle_of_a_transaction_is_an_outage(
    database: Database, proxy: SilentProxy, clock: Clock
) -> None:
    def ask() -> OperationalError:
        with database.write() as session:
            session.execute(text("select 1"))
            proxy.lose_all()
            with pytest.raises(OperationalError) as raised:
                session.execute(text("select 2"))
            session.rollback()
        return raised.value

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        until_noticed(proxy, clock, asked.done)
    assert asked.result().connection_invalidated
    assert is_outage(asked.result())


def test_one_silent_connection_of_the_pool_makes_it_replace_all(
    database: Database, proxy: SilentProxy, clock: Clock
) -> None:
    connections = [database.engine.connect() for _ in range(5)]
    for connection in connections:
        connection.close()
    assert proxy.lose_all() == 5

    def ask() -> list[Any]:
        answers = []
        for _ in range(5):
            with database.read() as session:
                answers.append(session.scalar(text("select 2")))
        return answers

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        until_noticed(proxy, clock, asked.done)
    assert asked.result() == [2] * 5
    assert proxy.silent_count == 1


def as_released(module: ModuleType) -> Any:
    """The module without the tests' own timeouts."""
    spec = find_spec(module.__name__)
    assert spec
    assert spec.loader
    fresh = module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


def test_postgresql_ends_a_slow_statement_before_the_service_takes_it_for_silent() -> None:
    assert as_released(store).TIMEOUTS["statement_timeout"] == "20s"
    assert as_released(deadline_connection).STATEMENT_SECONDS > 20


def silence_allowed(connection: Any) -> float | None:
    allowed: float | None = connection.connection.driver_connection.max_silence
    return allowed


def test_a_transaction_without_a_time_limit_may_wait_longer_and_only_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline_connection, "STATEMENT_SECONDS", 17.0)
    with database.engine.connect() as connection:
        assert silence_allowed(connection) == 17
        lift_statement_timeout(connection)
        assert silence_allowed(connection) == deadline_connection.LONG_STATEMENT_SECONDS
    with database.engine.connect() as connection:
        assert silence_allowed(connection) == 17


def test_a_change_of_the_schema_has_no_deadline(database: Database) -> None:
    with _locked_schema(database) as connection:
        assert silence_allowed(connection) is None
