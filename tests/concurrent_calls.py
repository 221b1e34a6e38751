"""Calls that overlap."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase

from service.store.sql.database import Database
from tests.timeouts import wait_until

Result = TypeVar("Result")


def at_once(count: int, call: Callable[[], Result]) -> list[Result]:
    """The results of so many calls, which begin together in threads of their own. Raises what a call raises."""
    start = threading.Barrier(count)

    def begin() -> Result:
        start.wait()
        return call()

    with ThreadPoolExecutor(count) as threads:
        return [begun.result() for begun in [threads.submit(begin) for _ in range(count)]]


def during_insert(database: Database, row: DeclarativeBase, call: Callable[[], Result]) -> Result:
    """The result of a call that waits for the end of another transaction, which has inserted the row. PostgreSQL."""
    with ThreadPoolExecutor(1) as threads:
        with database.write() as session:
            session.add(row)
            session.flush()
            begun = threads.submit(call)
            wait_until(lambda: begun.done() or is_waiting_for_a_lock(database))
        return begun.result()


def is_waiting_for_a_lock(database: Database) -> bool:
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with database.read() as session:
        return bool(session.scalar(text(query)))
