"""The service's database, for commands that work on it without the HTTP API."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema import upgrade


@contextmanager
def upgraded_database(settings: Settings | None = None) -> Iterator[Database]:
    """Open the settings' database, upgraded to the newest schema. Raises BadSettings."""
    settings = settings or Settings.from_env()
    settings.prepare_directories()
    database = Database(settings.database_url)
    try:
        upgrade(database)
        yield database
    finally:
        database.close()
