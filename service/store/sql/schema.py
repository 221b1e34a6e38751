"""Upgrades a database to the newest schema, and checks its version."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

import migrations
from service.store.sql.database import Database

_UPGRADE_LOCK = 7_205_759_403  # any number, the same for every service process


def upgrade(database: Database) -> None:
    """Several service processes may call this concurrently: on PostgreSQL one upgrades and the others wait."""
    with _unchecked_keys(database) as connection, connection.begin():
        if not database.is_sqlite:
            connection.execute(text("set local statement_timeout = 0"))
            connection.execute(text("set local lock_timeout = 0"))
            connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        command.upgrade(config(connection), "head")
        broken = connection.execute(text("pragma foreign_key_check")).all() if database.is_sqlite else []
        if broken:
            raise RuntimeError(f"the new schema would leave rows that belong to nothing: {broken[:10]}")


@contextmanager
def _unchecked_keys(database: Database) -> Iterator[Connection]:
    """Connect, on SQLite with foreign keys off.

    SQLite changes a constraint by copying the table and dropping the old one, which must not cascade to other tables.
    It ignores the setting inside of a transaction.
    """
    with database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        if raw is None or not database.is_sqlite:
            yield connection
            return
        raw.execute("pragma foreign_keys = off")
        try:
            yield connection
        finally:
            connection.rollback()
            raw.execute("pragma foreign_keys = on")


def is_current(connection: Connection) -> bool:
    return MigrationContext.configure(connection).get_current_revision() == _newest()


@cache
def _newest() -> str | None:
    """Cached, because `/readyz` is called frequently."""
    return ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()


def config(connection: Connection) -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings
