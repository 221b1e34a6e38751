"""The service's database, for commands that work on it without the HTTP API: upgraded, or as it is."""

import sqlite3
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from service import private_files
from service.cli.database_lock import DatabaseInUse, database_lock
from service.settings import BadSettings, DatabaseAway, Settings, without_password
from service.store.sql.database import Database, is_cancelled, is_full, is_locked, is_outage, is_sqlite_locked
from service.store.sql.schema_upgrade import (
    ForeignSchema,
    SchemaState,
    SchemaTooNew,
    WouldLoseData,
    downgrade,
    newest_revision,
    revision_of,
    state_of,
    upgrade,
)

PRIMARY_CODE = 0xFF
"""The bits of SQLite's result codes that are the same for all of one kind (https://sqlite.org/rescode.html)."""


@contextmanager
def upgraded_database(settings: Settings | None = None) -> Iterator[Database]:
    """Open the settings' database, upgraded to the newest schema. Raises BadSettings."""
    settings = settings or Settings.from_env()
    with private_files.new_files_restricted():
        settings.prepare_directories()
        database = Database(settings.database_url)
        try:
            _upgrade(database)
            _restrict_files(database)
            with _naming_outages(database):
                yield database
        finally:
            database.close()


@contextmanager
def present_database(settings: Settings, *, also_newer: bool = False) -> Iterator[Database]:
    """Open the settings' database as it is. Raises BadSettings if there is none, or it has another version's schema.

    With `also_newer`, a schema of a later version that is known to work with this one is accepted, too.
    """
    with _existing_database(settings) as database:
        _check_schema(database, {SchemaState.CURRENT, SchemaState.NEWER} if also_newer else {SchemaState.CURRENT})
        yield database


@contextmanager
def _existing_database(settings: Settings) -> Iterator[Database]:
    """Raises BadSettings if there is none."""
    with private_files.new_files_restricted():
        database = Database(settings.database_url)
        try:
            _check_file(database)
            with _naming_outages(database):
                yield database
        finally:
            database.close()


def _check_file(database: Database) -> None:
    """SQLite would create it."""
    file = database.engine.url.database
    if database.is_sqlite and file and not Path(file).exists():
        raise BadSettings(f"there is no database {file}; see PACELINE_DATA_DIR and PACELINE_DATABASE_URL")


def _check_schema(database: Database, accepted: Container[SchemaState]) -> None:
    try:
        with database.engine.connect() as connection:
            state, present = state_of(connection), revision_of(connection)
            if state is SchemaState.FOREIGN:
                raise BadSettings(str(ForeignSchema.of(connection)))
    except DBAPIError as error:
        _check_reached(database, error)
        raise
    if state not in accepted:
        what = f"has the schema of another version (revision {present})" if present else "is empty"
        raise BadSettings(
            f"the database {what}; this version has revision {newest_revision()}. Use the version of the service"
        )


def _upgrade(database: Database) -> None:
    try:
        upgrade(database)
    except (ForeignSchema, SchemaTooNew) as error:
        raise BadSettings(str(error)) from error
    except DBAPIError as error:
        _check_reached(database, error)
        raise


@contextmanager
def _naming_outages(database: Database) -> Iterator[None]:
    """Raises DatabaseAway or BadSettings in place of an error of the database that its user has to see to."""
    try:
        yield
    except DBAPIError as error:
        _check_reached(database, error)
        raise


def _check_reached(database: Database, error: DBAPIError) -> None:
    """Raises DatabaseAway if the error means that the database does not answer, or does not finish the command.

    Raises BadSettings if SQLite's file is damaged or is no database.
    """
    if getattr(error.orig, "sqlite_errorcode", 0) & PRIMARY_CODE in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        raise BadSettings(
            f"the database {database.engine.url.database} cannot be read: {outage_reason(error)}; restore a backup, or "
            "see PACELINE_DATA_DIR and PACELINE_DATABASE_URL"
        ) from error
    if not is_outage(error):
        return
    url = without_password(database.engine.url.render_as_string(hide_password=True))
    if is_sqlite_locked(error):
        how, advice = "is in use by another process", "nothing was changed. Repeat this later, or stop that process"
    elif is_cancelled(error) or is_locked(error):
        how, advice = "has ended the command", "nothing was changed. See whether services or others use it"
    elif is_full(error):
        how, advice = "has no space left", "nothing was changed. Free some space where it is"
    else:
        how, advice = "does not answer", "see PACELINE_DATABASE_URL and the server's log"
    raise DatabaseAway(f"the database {url} {how}: {outage_reason(error)}; {advice}") from error


def outage_reason(error: SQLAlchemyError) -> str:
    """The database's own words, in one line, without a password."""
    words = str(getattr(error, "orig", None) or error.__cause__ or error)
    return without_password(words).strip().partition("\n")[0]


def _restrict_files(database: Database) -> None:
    """Restrict SQLite's own files, which may be outside of the data directory."""
    file = database.engine.url.database
    if database.is_sqlite and file:
        for suffix in ("", "-wal", "-shm"):
            private_files.restrict(Path(file + suffix))


@contextmanager
def _without_service(settings: Settings) -> Iterator[None]:
    """Raises BadSettings if a service uses the SQLite database. PostgreSQL has no lock that says so."""
    try:
        with database_lock(settings.database_url):
            yield
    except DatabaseInUse as error:
        raise BadSettings(
            f"a service uses the database {settings.database_url}; nothing was changed. Stop the service first"
        ) from error


def downgraded(revision: str, *, lose_data: bool) -> str:
    """Downgrade the settings' database; return its revision.

    Raises BadSettings, also if data would be lost, or a service runs on a SQLite database; and DatabaseAway.
    """
    settings = Settings.from_env()
    with _existing_database(settings) as database, _without_service(settings):
        try:
            return downgrade(database, revision, lose_data=lose_data)
        except DBAPIError as error:
            _check_reached(database, error)
            raise
        except WouldLoseData as error:
            raise BadSettings(f"{error}. Nothing was changed; to downgrade all the same: --lose-data") from error
        except (ForeignSchema, ValueError) as error:
            raise BadSettings(str(error)) from error
