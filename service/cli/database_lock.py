"""The lock by which one service process at a time uses a SQLite database.

A second one would not hear of the changes of the first. The system frees the lock when its process ends.
"""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from sqlalchemy.engine import make_url

from service.stack.ports import POLL_SECONDS, RELEASE_SECONDS


class DatabaseInUse(Exception):
    """Another service process uses the SQLite database."""


@contextlib.contextmanager
def database_lock(url: str) -> Iterator[None]:
    """Hold the lock of a SQLite database. Other databases serve any number of processes, and have none.

    Raises DatabaseInUse. Where no lock can be had, as in some network file systems, it goes on without one.
    """
    database = make_url(url)
    with contextlib.ExitStack() as held:
        if database.get_backend_name() == "sqlite" and database.database:
            with contextlib.suppress(OSError):  # opening the database says more
                path = Path(database.database).resolve()
                _lock(held.enter_context(Path(f"{path}.lock").open("a")), path)
        yield


def _lock(file: TextIO, database: Path) -> None:
    """A process that is just ending frees the lock soon."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while not _is_locked(file):
        if time.monotonic() > deadline:
            raise DatabaseInUse(
                f"another service process uses the database {database}, and SQLite serves only one. Stop it, set "
                "PACELINE_DATA_DIR to another directory, or use PostgreSQL (PACELINE_DATABASE_URL)"
            )
        time.sleep(POLL_SECONDS)


def _is_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
