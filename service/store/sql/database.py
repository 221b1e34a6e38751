"""Sessions on SQLite or PostgreSQL. `read()` sees a snapshot; `write()` commits at its end, or rolls back."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, create_engine, event, func, select, text
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from service.store.sql.bulk_writes import WriteSession
from service.store.sql.clock_jumps import ClockJumps
from service.store.sql.column_types import UtcDateTime
from service.store.sql.deadline_connection import LONG_STATEMENT_SECONDS, allow_silence, use_deadlines
from service.store.sql.process_caches import ProcessCaches

_SQLITE_CLOCK = func.strftime("%Y-%m-%d %H:%M:%f", "now", type_=UtcDateTime)
_POSTGRESQL_CLOCK = func.statement_timestamp(type_=UtcDateTime)

BUSY_TIMEOUT_SECONDS = 30
WAL_POLL_SECONDS = 0.01

CONNECTIONS = 37
"""The most connections of a service process. It has no more threads than that, so that none waits for a connection."""

POOL = {"pool_size": 10, "max_overflow": CONNECTIONS - 10, "pool_timeout": 10}

BRIEF_LOCK_SECONDS, LOCK_SECONDS = 0.1, 1.0
"""How long those wait for a lock who serve others, too: at first, and if they have nothing else to do or lose much. A
deletion or a change of an experiment may keep its lock for some tenths of a second."""

TIMEOUTS = {"statement_timeout": "20s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s"}
"""PostgreSQL's timeouts: a service process that hangs must not block the others with its locks."""

KEEPALIVES = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""How PostgreSQL notices that a service was cut off from it. Its default is two hours, in which its locks stay held."""

CONNECT_ARGUMENTS = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 15_000}
"""libpq's settings, in seconds, the last one in milliseconds. They detect a server that vanished from the network.

`deadline_connection` detects one that the network still acknowledges for, and that does not answer.
"""


class Database:
    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.process_caches = caches = ProcessCaches()
        event.listen(self.engine, "invalidate", lambda *_: caches.clear())
        reading = self.engine.execution_options(paceline_begin="DEFERRED")
        writing = self.engine.execution_options(paceline_begin="IMMEDIATE")
        self.clock_jumps = ClockJumps()
        info = caches.for_sessions() | self.clock_jumps.for_sessions()
        self._reads = sessionmaker(reading, expire_on_commit=False, info=info)
        self._writes = sessionmaker(writing, class_=WriteSession, expire_on_commit=False, info=info)
        # SQLite has one writer. Waiting for this lock is fast; SQLite's busy handler polls.
        self._one_writer = threading.Lock() if self.is_sqlite else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self._reads() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[WriteSession]:
        with self._one_writer, self._writes() as session:
            with session.begin():
                yield session
            for call in session.after_commit:
                call()

    def close(self) -> None:
        self.engine.dispose()


def wait_little_for_locks(session: Session, seconds: float = BRIEF_LOCK_SECONDS) -> None:
    """In this transaction: for a caller who serves others, too. SQLite has one writer, which waits as always."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"set local lock_timeout = {round(seconds * 1000)}"))


def lift_statement_timeout(connection: Connection, silence_seconds: float | None = LONG_STATEMENT_SECONDS) -> None:
    """Let the statements of this transaction take as long as they need, as one must whose work grows with the data.

    PostgreSQL may then be silent for `silence_seconds`; None: for as long as it likes.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("set local statement_timeout = 0"))
        allow_silence(connection.connection.driver_connection, silence_seconds)


def database_now(session: Session) -> datetime:
    """The database's clock, which all service processes share."""
    return session.execute(_select_clock(session.get_bind().dialect.name)).scalar_one()


@cache
def _select_clock(dialect: str) -> Select[datetime]:
    return select(clock_of(dialect))


def clock_of(dialect: str) -> ColumnElement[datetime]:
    """`database_now` as a column of another query: the time at which that query begins, so after locks taken before."""
    return _SQLITE_CLOCK if dialect == "sqlite" else _POSTGRESQL_CLOCK


def is_outage(error: DBAPIError) -> bool:
    """Whether the database is unreachable, busy or read-only, as opposed to a bug in a statement."""
    if getattr(error.orig, "sqlstate", None) == "25006":  # read-only: a standby, before or after a failover
        return True
    return error.connection_invalidated or type(error).__name__ in {"OperationalError", "InterfaceError"}


def affects_all_calls(error: Exception) -> bool:
    """Whether any other call would fail in the same way now."""
    if not isinstance(error, DBAPIError):
        return True
    return (is_outage(error) or is_full(error)) and not is_locked(error)


def is_database_down(error: BaseException) -> bool:
    """Whether the error of one piece of work says that the database serves no other either."""
    return isinstance(error, DBAPIError | PoolTimeout) and affects_all_calls(error)


def is_full(error: DBAPIError) -> bool:
    """Whether the database's disk is full."""
    codes = {getattr(error.orig, name, None) for name in ("sqlstate", "sqlite_errorname")}
    return not codes.isdisjoint({"53100", "SQLITE_FULL"})


def cannot_write(error: BaseException) -> bool:
    """Whether the database's disk takes no writes. A transaction that changes nothing may succeed nevertheless."""
    if not isinstance(error, DBAPIError):
        return False
    return is_full(error) or str(getattr(error.orig, "sqlite_errorname", "")).startswith("SQLITE_IOERR")


def is_locked(error: BaseException) -> bool:
    """Whether PostgreSQL refused a lock on rows that another transaction holds: a timeout, or a deadlock."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in {"55P03", "40P01"}


def is_sqlite_locked(error: DBAPIError) -> bool:
    """Whether another process held the lock of a SQLite database for longer than a statement waits."""
    return str(getattr(error.orig, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def is_cancelled(error: DBAPIError) -> bool:
    """Whether PostgreSQL ended a statement that took too long, or that an administrator ended, and works otherwise."""
    return getattr(error.orig, "sqlstate", None) == "57014"


def _engine(url: str) -> Engine:
    """Error messages do not show parameters, because digests of tokens are among them."""
    if make_url(url).get_backend_name() != "sqlite":
        return _postgresql(url)
    arguments = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_SECONDS, "isolation_level": None}
    engine = create_engine(url, hide_parameters=True, connect_args=arguments, **POOL)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True, connect_args=CONNECT_ARGUMENTS, pool_pre_ping=True, **POOL)
    use_deadlines(engine)
    event.listen(engine, "handle_error", _drop_details)
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    """Set the timeouts by statements: connection poolers refuse unknown options in the address."""
    with connection.cursor() as cursor:
        for setting, value in (TIMEOUTS | KEEPALIVES).items():
            cursor.execute(f"SET {setting} = '{value}'")
    connection.commit()


def _drop_details(context: ExceptionContext) -> None:
    """Remove DETAIL from error messages, because it quotes the row."""
    for error in (context.original_exception, context.sqlalchemy_exception):
        if error is not None and error.args:
            error.args = (str(error.args[0]).partition("\nDETAIL:")[0], *error.args[1:])


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    _use_wal(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: Any) -> None:
    """Retries, because SQLite does not wait for another process that switches a new database at the same moment."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(WAL_POLL_SECONDS)


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('paceline_begin', 'DEFERRED')}")
