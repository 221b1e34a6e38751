"""PostgreSQL's advisory locks: what one service process per database does at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from service.store.sql.database import Database


class LockLost(Exception):
    """The connection that held the lock is gone, so another service process may hold it now."""


class AdvisoryLock:
    """An attempt to take a lock. No transaction stays open, since the lock belongs to a connection.

    So a process that dies releases it. SQLite has one service process, and no connection here.
    """

    def __init__(self, connection: Connection | None, *, held: bool) -> None:
        self._connection = connection
        self.held = held

    def check(self) -> None:
        """Raise LockLost unless the lock is still held, as far as PostgreSQL is known to say."""
        if self.held and self._connection is not None:
            try:
                self._connection.scalar(text("select 1"))
            except DBAPIError as error:
                self.held = False
                self._connection.invalidate()  # it may still have the lock, which must not return to the pool with it
                raise LockLost("the connection with the lock is lost; another service may have it now") from error
        if not self.held:
            raise LockLost("the lock is not held")


@contextmanager
def try_advisory_lock(database: Database, key: int) -> Iterator[AdvisoryLock]:
    if database.is_sqlite:
        yield AdvisoryLock(None, held=True)
        return
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        lock = AdvisoryLock(
            connection, held=bool(connection.scalar(text("select pg_try_advisory_lock(:key)"), {"key": key}))
        )
        try:
            yield lock
        finally:
            if lock.held:
                lock.held = False
                _unlock(connection, key)


def _unlock(connection: Connection, key: int) -> None:
    """The end of a connection releases its lock, too."""
    try:
        connection.execute(text("select pg_advisory_unlock(:key)"), {"key": key})
    except DBAPIError:
        connection.invalidate()
        raise
