"""Several processes that use an SQLite database for the first time, or upgrade it, at the same moment."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from service.store.sql.database import Database
from service.store.sql.schema_upgrade import SchemaState, downgrade, newest_revision, state_of, upgrade

UPGRADE = [sys.executable, "-m", "service.cli", "db", "upgrade"]


@pytest.mark.slow
@pytest.mark.parametrize("revision", [None, "0001"], ids=["first use", "upgrade"])
def test_processes_that_upgrade_a_database_wait_for_one_another(tmp_path: Path, revision: str | None) -> None:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}")
    if revision:
        upgrade(database)
        downgrade(database, revision)
    env = os.environ | {"PACELINE_DATA_DIR": str(tmp_path)}
    processes = [subprocess.Popen(UPGRADE, env=env, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert "".join(said).count("Running upgrade") == int(newest_revision()) - int(revision or 0)
    with database.engine.connect() as connection:
        assert state_of(connection) is SchemaState.CURRENT
    database.close()


def test_a_new_database_that_another_process_writes_to_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "paceline.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        monkeypatch.setattr("time.sleep", lambda _: other.execute("commit"))
        database = Database(f"sqlite:///{file}")
        database.engine.connect().close()
        database.close()
        assert not other.in_transaction
