"""`paceline db mirror-again`: it works on the database of a service, and on no other."""

from pathlib import Path

import pytest

from service.store.sql.schema_upgrade import newest_revision
from tests.unit.cli.conftest import Run
from tests.unit.cli.stored_revisions import create, revision_in, set_revision


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the settings' database, which does not exist yet."""
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PACELINE_MLFLOW_URI", "http://mlflow.example")
    return tmp_path / "data" / "paceline.db"


@pytest.mark.usefixtures("database")
def test_everything_is_mirrored_again(run: Run) -> None:
    create()
    assert run("db", "mirror-again").out == "The service writes 0 experiments to MLflow again.\n"
    ended = run("db", "mirror-again", "nothing")
    assert (ended.code, ended.out) == (2, "")
    assert "there is no experiment 'nothing'" in ended.err


def test_a_database_that_does_not_exist_is_not_created(run: Run, database: Path) -> None:
    ended = run("db", "mirror-again")
    assert (ended.code, ended.out) == (2, "")
    assert f"there is no database {database}" in ended.err
    assert not database.parent.exists()


@pytest.mark.usefixtures("database")
def test_without_the_address_of_mlflow_nothing_is_forgotten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    create()
    monkeypatch.delenv("PACELINE_MLFLOW_URI")
    ended = run("db", "mirror-again")
    assert (ended.code, ended.out) == (2, "")
    assert "PACELINE_MLFLOW_URI is not set" in ended.err


@pytest.mark.parametrize("revision", ["0001", "9999"])
def test_the_schema_of_another_version_stays_as_it_is(run: Run, database: Path, revision: str) -> None:
    create()
    set_revision(database, revision)
    ended = run("db", "mirror-again")
    assert (ended.code, ended.out) == (2, "")
    assert f"another version (revision {revision}); this version has revision {newest_revision()}" in ended.err
    assert revision_in(database) == revision


def test_an_empty_database_stays_empty(run: Run, database: Path) -> None:
    database.parent.mkdir()
    database.touch()
    ended = run("db", "mirror-again")
    assert (ended.code, ended.out) == (2, "")
    assert "the database is empty" in ended.err
