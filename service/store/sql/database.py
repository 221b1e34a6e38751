"""Sessions on SQLite or PostgreSQL. `read()` sees a snapshot; `write()` commits at its end, or not at all."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from service.store.early_stopping.milestone_cache import KnownMilestones
from service.store.early_stopping.milestones import MilestoneSession
from service.store.sql.column_types import UtcDateTime

_SQLITE_CLOCK = func.strftime("%Y-%m-%d %H:%M:%f", "now", type_=UtcDateTime)
_POSTGRESQL_CLOCK = func.statement_timestamp(type_=UtcDateTime)

BUSY_TIMEOUT_SECONDS = 30

PATIENCE = {"statement_timeout": "20s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s"}
"""What PostgreSQL ends by itself: one service process that hangs must not keep a lock from all the others."""

CONNECTING = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 15_000}
"""libpq's settings, the last in milliseconds: a server that vanished from the network is soon known to be away."""


class Database:
    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._reads = sessionmaker(self.engine.execution_options(paceline_begin="DEFERRED"), expire_on_commit=False)
        writing = self.engine.execution_options(paceline_begin="IMMEDIATE")
        milestones = KnownMilestones()
        # Behind a connection that broke there may be another server from now on, which lacks the last commits.
        event.listen(self.engine, "invalidate", lambda *_: milestones.clear())
        self._writes = sessionmaker(writing, class_=MilestoneSession, expire_on_commit=False, known=milestones)
        # SQLite has one writer; waiting here is fair and quick, waiting in its busy handler is neither.
        self._one_writer = threading.Lock() if self.is_sqlite else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self._reads() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._one_writer, self._writes() as session:
            with session.begin():
                yield session
                session.flush()  # a commit would not, had only rows been added for later
            session.keep_milestones()

    def close(self) -> None:
        self.engine.dispose()


def database_now(session: Session) -> datetime:
    """The database's clock: the one that all service processes agree on."""
    return session.execute(select(clock_of(session))).scalar_one()


def clock_of(session: Session) -> ColumnElement[datetime]:
    """`database_now`, for a query that asks for more: when it began, which is after what came before was granted."""
    return _SQLITE_CLOCK if session.get_bind().dialect.name == "sqlite" else _POSTGRESQL_CLOCK


def is_outage(error: DBAPIError) -> bool:
    """Whether the database is away, busy or read-only, as against a mistake of ours."""
    if getattr(error.orig, "sqlstate", None) == "25006":  # a standby, before or after it has taken over
        return True
    return error.connection_invalidated or type(error).__name__ in {"OperationalError", "InterfaceError"}


def is_away(error: Exception) -> bool:
    """Whether it would be the same for any other call now."""
    return not isinstance(error, DBAPIError) or is_outage(error) or is_full(error)


def is_full(error: DBAPIError) -> bool:
    """Whether the database has no room to write."""
    codes = {getattr(error.orig, name, None) for name in ("sqlstate", "sqlite_errorname")}
    return not codes.isdisjoint({"53100", "SQLITE_FULL"})


def _engine(url: str) -> Engine:
    """Values stay out of error messages: lease tokens are among them."""
    if make_url(url).get_backend_name() != "sqlite":
        return _postgresql(url)
    arguments = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_SECONDS, "isolation_level": None}
    engine = create_engine(url, hide_parameters=True, connect_args=arguments)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql(url: str) -> Engine:
    pool = {"pool_pre_ping": True, "pool_size": 10, "max_overflow": 20, "pool_timeout": 10}
    engine = create_engine(url, hide_parameters=True, connect_args=CONNECTING, **pool)
    event.listen(engine, "handle_error", _drop_details)
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    """By statements, since poolers in between refuse what they do not know in the address."""
    with connection.cursor() as cursor:
        for setting, value in PATIENCE.items():
            cursor.execute(f"SET {setting} = '{value}'")
    connection.commit()


def _drop_details(context: ExceptionContext) -> None:
    """PostgreSQL's details quote the row."""
    for error in (context.original_exception, context.sqlalchemy_exception):
        if error is not None and error.args:
            error.args = (str(error.args[0]).partition("\nDETAIL:")[0], *error.args[1:])


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('paceline_begin', 'DEFERRED')}")
