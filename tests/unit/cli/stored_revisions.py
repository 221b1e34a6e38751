"""Databases of other revisions."""

import sqlite3
from pathlib import Path

from service.cli.upgraded_database import upgraded_database
from service.settings import Settings


def create() -> None:
    with upgraded_database(Settings.from_env()):
        pass


def set_revision(database: Path, revision: str) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("update alembic_version set version_num = ?", (revision,))


def revision_in(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        return str(connection.execute("select version_num from alembic_version").fetchone()[0])
