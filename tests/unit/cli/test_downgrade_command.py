"""`paceline db downgrade`: it works on a database that exists, and knows the schema of."""

from pathlib import Path

import pytest

from service.store.sql.schema_upgrade import newest_revision
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_mirror_again_command import create, revision_in, set_revision


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
