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


def test_a_link_as_data_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    real, link, elsewhere = tmp_path / "real", tmp_path / "link", tmp_path / "elsewhere"
    model = real / "checkpoints" / "model.pt"
    for directory in (model.parent, elsewhere):
        directory.mkdir(parents=True)
    model.touch()
    link.symlink_to(real)
    (real / "users").symlink_to(elsewhere)
    opened = {real: 0o755, model: 0o644, elsewhere: 0o755}
    for path, mode in opened.items():
        path.chmod(mode)

    Settings.from_env({"PACELINE_DATA_DIR": str(link)}).prepare_directories()

    assert {path: path.stat().st_mode & 0o777 for path in opened} == opened | {real: 0o700}
