"""Writes a revision for the difference between `service/store/tables.py` and the newest schema.

usage: python -m migrations.new_revision "what it adds"
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

from alembic import command
from alembic.script import Script, ScriptDirectory

from service.store.sql.database import Database
from service.store.sql.schema_upgrade import config, upgrade


def main(title: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = Database(f"sqlite:///{Path(directory) / 'paceline.db'}")
        upgrade(database)
        with database.engine.begin() as connection:
            settings = config(connection)
            head = ScriptDirectory.from_config(settings).get_current_head() or "0"
            made = command.revision(settings, title, autogenerate=True, rev_id=f"{int(head) + 1:04d}")
        database.close()
    path = Path(cast(Script, made).path)
    path.write_text(without_alembics_comments(path.read_text()))
    for arguments in (("check", "--fix"), ("format",)):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, str(path)], check=False)  # noqa: S603 - our own


def without_alembics_comments(source: str) -> str:
    return "".join(line for line in source.splitlines(keepends=True) if not line.lstrip().startswith("# ###"))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
