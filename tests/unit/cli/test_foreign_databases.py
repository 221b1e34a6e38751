"""A database of another program is named as such by each command, and stays as it is."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from service.store.sql.schema_upgrade import newest_revision
from tests.unit.cli.conftest import Run

OF_MLFLOW = (
    "create table alembic_version (version_num varchar(32)); insert into alembic_version values ('{}');"
    "create table experiments (experiment_id integer); create table runs (run_uuid text); create table tags (a, b);"
)
PROGRAMS = {
    "a-later-number": OF_MLFLOW.format("bda7b8c39065"),
    "an-earlier-number": OF_MLFLOW.format("00a1b2c3d4e5"),
    "our-numbers": OF_MLFLOW.format(newest_revision()),
    "our-first-number": OF_MLFLOW.format("0001"),
    "no-number": "create table songs (id integer)",
    "our-names": "create table experiments (id integer); create table trials (id integer)",
}
COMMANDS = (
    ["serve", "--port", "0"],
    ["db", "upgrade"],
    ["db", "downgrade", "0001"],
    ["db", "mirror-again"],
    ["token", "create", "alice"],
    ["token", "ls"],
    ["backup", "a.tar.gz"],
)


@pytest.fixture(params=PROGRAMS.values(), ids=list(PROGRAMS))
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the database that the settings name."""
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(request.param)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lease-key").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PACELINE_DATABASE_URL", f"sqlite:///{file}")
    monkeypatch.setenv("PACELINE_MLFLOW_URI", "http://mlflow.example")
    return file


def content(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_says_that_the_database_belongs_to_another_program(
    run: Run, database: Path, command: list[str]
) -> None:
    before = content(database)

    ended = run(*command)

    assert (ended.code, ended.out) in {(2, ""), (1, "")}
    assert "the database belongs to another program: it has the tables " in ended.err
    assert "PACELINE_DATABASE_URL" in ended.err
    assert content(database) == before


def test_the_doctor_says_so(run: Run, database: Path) -> None:
    assert f"sqlite:///{database} belongs to another program" in run("doctor").out.replace("\n", "")


def test_an_empty_database_beside_tables_of_a_copier_is_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "paceline.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table _litestream_seq (id integer)")
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    assert run("db", "upgrade").code == 0
