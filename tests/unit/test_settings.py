"""The settings: what a data directory, a storage and a limit may be."""

import sqlite3
from contextlib import closing
from pathlib import Path

from service.cli.upgraded_database import upgraded_database
from service.settings import Settings


def test_the_database_is_in_a_data_directory_of_any_name(tmp_path: Path) -> None:
    name = "ä?b%20c#d@e:f+ g"
    with upgraded_database(Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path / name)})):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with closing(sqlite3.connect(tmp_path / name / "paceline.db")) as database:
        assert database.execute("select count(*) from experiments").fetchone() == (0,)
