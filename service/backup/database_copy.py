"""Copies a database that is in use, and fills an empty one from a copy.

SQLite: its online backup API (https://www.sqlite.org/backup.html), in one step, so one snapshot. PostgreSQL: its own
programs pg_dump and pg_restore, with the custom format (https://www.postgresql.org/docs/current/app-pgdump.html).

The leases of a copy are revoked where it is restored: their holders have gone on since, so what they reported until
then would be missing from the curves. With new attempts nothing is.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from service.backup.failure import BackupFailed
from service.domain.token_digest import DIGEST_LENGTH, REVOKED
from service.store.sql.database import Database

REVOKE_LEASES = (
    f"update attempts set lease_digest = '{REVOKED}' || substr(lease_digest, 1, {DIGEST_LENGTH - len(REVOKED)}) "  # noqa: S608 - a constant
    f"where ended_at is null and lease_digest not like '{REVOKED}%'"
)
"""As `revoked_digest`."""

FIRST_WITH_DIGESTS = "0013"
"""The first revision of a schema with digests of leases. In earlier ones, the tokens are replaced in the same way."""


def copy_database(database: Database, target: Path) -> None:
    """Write one snapshot of the database to the file `target`. Raises BackupFailed."""
    url = database.engine.url
    if not database.is_sqlite:
        _run("pg_dump", url, "--format=custom", f"--file={target}")
        return
    _copy_sqlite(url.database or "", target)


def fill_database(database: Database, copy: Path, revision: str) -> None:
    """Fill the empty database with the content of the file `copy`, and revoke the leases. Raises BackupFailed.

    Or change nothing, unless PostgreSQL fails in between, or the process is killed there.
    """
    url = database.engine.url
    if not database.is_sqlite:
        options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", str(copy))
        _run("pg_restore", url, *options)
        _revoke_leases(database, revision)
        return
    _revoke_leases_of_sqlite(copy, revision)
    _copy_sqlite(copy, url.database or "")


def check_exists(database: Database) -> None:
    """SQLite would create it. Raises BackupFailed."""
    file = database.engine.url.database
    if database.is_sqlite and not Path(file or "").is_file():
        raise BackupFailed(f"there is no database {file}; PACELINE_DATABASE_URL and PACELINE_DATA_DIR say which it is")


def is_empty(database: Database) -> bool:
    with database.engine.connect() as connection:
        return not inspect(connection).get_table_names()


def _revoke_leases(database: Database, revision: str) -> None:
    try:
        with database.engine.begin() as connection:
            connection.execute(text(_statement(revision)))
    except DBAPIError as error:
        raise BackupFailed(
            f"the leases cannot be revoked: {error.orig}; empty the database before the next try"
        ) from error


def _revoke_leases_of_sqlite(copy: Path, revision: str) -> None:
    try:
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.execute(_statement(revision))
    except sqlite3.Error as error:
        raise BackupFailed(f"{copy} cannot be copied: {error}") from error


def _statement(revision: str) -> str:
    return REVOKE_LEASES if revision >= FIRST_WITH_DIGESTS else REVOKE_LEASES.replace("lease_digest", "lease_token")


def _copy_sqlite(source: str | Path, target: str | Path) -> None:
    try:
        with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        raise BackupFailed(f"{source} cannot be copied to {target}: {error}") from error


def _run(program: str, url: URL, *options: str) -> None:
    """The password goes by the environment, because every user can read a command line."""
    found = shutil.which(program)
    if found is None:
        raise BackupFailed(
            f"{program} is not on the PATH: install PostgreSQL's client programs, in the server's version or a newer"
        )
    query = {name: value for name, value in url.query.items() if name != "password"}
    address = URL.create(
        "postgresql", url.username, host=url.host, port=url.port, database=url.database, query=query
    ).render_as_string()
    known = url.password or url.query.get("password")
    password = {"PGPASSWORD": str(known)} if known else {}
    ended = subprocess.run(  # noqa: S603 - a program of PostgreSQL, with options from here
        [found, f"--dbname={address}", *options],
        env={**os.environ, **password},
        capture_output=True,
        text=True,
        check=False,
    )
    words = ended.stderr.strip()[-1000:]
    if ended.returncode < 0:
        raise BackupFailed(f"{program} was ended by {signal.Signals(-ended.returncode).name}{words and f': {words}'}")
    if ended.returncode:
        raise BackupFailed(f"{program} failed: {words or f'it ended with exit code {ended.returncode}'}")
