"""`paceline db downgrade`: it works on a database that exists and is not in use, and knows the schema of."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.cli import database_lock
from service.settings import Settings
from service.store.sql import database as sql_database
from service.store.sql.schema_upgrade import newest_revision
from tests.unit.cli.conftest import Run
from tests.unit.cli.stored_revisions import create, revision_in, set_revision


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the settings' database, which does not exist yet."""
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    return tmp_path / "paceline.db"


def test_a_schema_that_only_a_later_version_knows_stays_as_it_is(run: Run, database: Path) -> None:
    create()
    set_revision(database, "9999")
    ended = run("db", "downgrade", newest_revision())
    assert (ended.code, ended.out) == (2, "")
    assert "the schema of a later version (revision 9999)" in ended.err
    assert "run `paceline db downgrade` with the later version" in ended.err
    assert revision_in(database) == "9999"


def test_no_database_is_created(run: Run, database: Path) -> None:
    ended = run("db", "downgrade", "0030")
    assert (ended.code, ended.out) == (2, "")
    assert f"there is no database {database}" in ended.err
    assert not list(database.parent.iterdir())


def test_a_database_of_a_running_service_stays_as_it_is(
    run: Run, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    monkeypatch.setattr(database_lock, "RELEASE_SECONDS", 0)
    with database_lock.database_lock(Settings.from_env().database_url):
        ended = run("db", "downgrade", "0030")
    assert (ended.code, ended.out) == (2, "")
    assert f"a service uses the database sqlite:///{database}; nothing was changed. Stop the service" in ended.err
    assert revision_in(database) == newest_revision()
    assert run("db", "downgrade", "0030").code == 0


@pytest.mark.parametrize("command", [["downgrade", "0029"], ["upgrade"]])
def test_a_database_that_another_process_has_locked_is_said_to_be_in_use(
    run: Run, database: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    create()
    set_revision(database, "0030")
    monkeypatch.setattr(sql_database, "BUSY_TIMEOUT_SECONDS", 0)
    with closing(sqlite3.connect(database)) as other:
        other.execute("begin immediate")
        ended = run("db", *command)
    assert (ended.code, ended.out) == (1, "")
    assert f"{database} is in use by another process: database is locked; nothing was changed. " in ended.err
    assert revision_in(database) == "0030"


def test_a_full_disk_is_not_said_to_be_a_database_that_does_not_answer(
    run: Run, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_up_without_room(connection: Any, *arguments: Any) -> None:
        set_up(connection, *arguments)
        connection.execute("pragma max_page_count = 1")  # no less than it has

    create()
    assert run("db", "downgrade", "0005").code == 0
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("vacuum")  # the pages of dropped tables would be room
    set_up = sql_database._set_up_sqlite
    monkeypatch.setattr(sql_database, "_set_up_sqlite", set_up_without_room)
    ended = run("db", "upgrade")
    assert (ended.code, ended.out) == (1, "")
    assert f"{database} has no space left: database or disk is full; nothing was changed. Free some" in ended.err
    assert revision_in(database) == "0005"
