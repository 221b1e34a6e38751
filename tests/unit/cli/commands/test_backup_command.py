"""`paceline backup` and `restore`: their messages and exit codes."""

import errno
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.cli.database_lock import database_lock
from service.cli.upgraded_database import upgraded_database
from service.settings import LEASE_KEY_FILE, Settings
from service.stack.ports import free_port
from service.store.sql.schema_upgrade import newest_revision
from tests.unit.cli.conftest import Ended, Run

SIGNALLED_WHILE_IT_COPIES = """
import os, shutil, signal, sys
from service.backup import backup_file
from service.cli.main import main

def copy(*arguments):
    os.kill(os.getpid(), number)
    copies(*arguments)

def remove(*arguments, **options):
    os.kill(os.getpid(), number)  # again, as a closing terminal does
    rmtree(*arguments, **options)

number, before = int(sys.argv.pop(1)), int(sys.argv.pop(1))
signal.signal(number, before)
rmtree, shutil.rmtree = shutil.rmtree, remove
name = {"backup": "copy_database", "restore": "fill_database"}[sys.argv[1]]
copies = getattr(backup_file, name)
setattr(backup_file, name, copy)
main()
"""


@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize("address", ["me:sekret@127.0.0.1:{port}/x", "me@127.0.0.1:{port}/x?password=sekret"])
def test_no_password_is_in_the_message_about_a_database_that_is_away(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, address: str
) -> None:
    url = f"postgresql+psycopg://{address.format(port=free_port())}"
    monkeypatch.setenv("PACELINE_DATABASE_URL", url)
    data = tmp_path / command
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / LEASE_KEY_FILE).touch()
    ended = run(command, str(tmp_path / "a.tar.gz"), "--data-dir", str(data))
    assert ended.code == 1
    assert "connection failed" in ended.err
    assert "sekret" not in ended.err


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a service."""
    with upgraded_database(Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path / "data")})):
        pass
    return tmp_path / "data"


@pytest.fixture
def content(run: Run, tmp_path: Path, data: Path) -> Path:
    """A folder with the content of a backup."""
    assert run("backup", str(tmp_path / "a.tar.gz"), "--data-dir", str(data)).code == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        archive.extractall(tmp_path / "content", filter="data")
    return tmp_path / "content"


def restored(run: Run, content: Path, **manifest: Any) -> Ended:
    """What a restore of the content says, with these members of its manifest."""
    file = content / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | manifest))
    with tarfile.open(content.with_name("changed.tar.gz"), "w:gz") as archive:
        archive.add(content, "")
    ended = run("restore", str(content.with_name("changed.tar.gz")), "--data-dir", str(content.with_name("new")))
    assert (ended.code == 0) == content.with_name("new").joinpath(LEASE_KEY_FILE).exists()
    return ended


def test_a_backup_of_a_later_format_names_the_version_that_restores_it(run: Run, content: Path) -> None:
    shutil.rmtree(content / "files")
    ended = restored(run, content, format=2, version="9.9", compression="zstd")
    assert ended.code == 1
    assert "has format 2 of backups, and this version knows format 1; nothing was changed" in ended.err
    assert "with the version that has written it (Paceline 9.9)" in ended.err


def test_a_backup_of_a_later_schema_names_both_revisions(run: Run, content: Path) -> None:
    ended = restored(run, content, revision="9999")
    assert f"has revision 9999 of the schema, and this version has {newest_revision()}" in ended.err


def test_a_database_that_is_too_new_is_not_backed_up(run: Run, data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "paceline.db")) as connection, connection:
        connection.execute("update alembic_version set version_num = '9999'")
        connection.execute("update schema_compatibility set oldest_revision = '9999'")
    ended = run("backup", str(tmp_path / "a.tar.gz"), "--data-dir", str(data))
    assert (ended.code, ended.out, (tmp_path / "a.tar.gz").exists()) == (1, "", False)
    assert f"a later version (revision 9999), and this one has {newest_revision()}" in ended.err


@pytest.mark.parametrize(("command", "what"), [("backup", "written"), ("restore", "changed")])
def test_a_full_disk_is_named_with_its_directory(
    run: Run, data: Path, content: Path, monkeypatch: pytest.MonkeyPatch, command: str, what: str
) -> None:
    def fill(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    backups = content.parent
    monkeypatch.setattr(tarfile, "copyfileobj", fill)
    directory, file = {"backup": (data, backups / "b.tar.gz"), "restore": (backups / "new", backups / "a.tar.gz")}[
        command
    ]
    ended = run(command, str(file), "--data-dir", str(directory))
    assert (ended.code, ended.out) == (1, "")
    named = backups if command == "backup" else directory
    assert f"{named} has no room for the backup's content (No space left on device); nothing was {what}" in ended.err


@pytest.mark.parametrize("member", [{"format": "1"}, {"format": None}, {"revision": 31}, {"version": [1]}])
def test_a_manifest_with_values_of_other_types_is_no_backup(run: Run, content: Path, member: dict[str, Any]) -> None:
    ended = restored(run, content, **member)
    assert ended.code == 1
    assert "is not a whole backup of Paceline" in ended.err


def test_a_backup_with_an_empty_database_is_not_restored(run: Run, content: Path) -> None:
    (content / "database").write_bytes(b"")
    ended = restored(run, content)
    assert (ended.code, ended.out) == (1, "")
    assert "is not a whole backup of Paceline" in ended.err


def test_more_members_of_the_same_format_are_left_out(run: Run, content: Path) -> None:
    assert restored(run, content, host="here").code == 0


def test_a_backup_is_on_the_disk_before_it_has_its_name(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name if path.is_file() else path, file.exists()))

    synced, file = list[tuple[Path | str, bool]](), tmp_path / "backups" / "a.tar.gz"
    monkeypatch.setattr(os, "fsync", note)
    assert run("backup", str(file), "--data-dir", str(data)).code == 0
    assert synced == [("archive", False), (file.parent, True)]


def test_a_backup_succeeds_where_a_directory_cannot_be_synced(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse_directories)
    ended = run("backup", str(tmp_path / "a.tar.gz"), "--data-dir", str(data))
    assert (ended.code, ended.err) == (0, "")


def signalled(data: Path, file: Path, number: signal.Signals, before: signal.Handlers, command: str = "backup") -> int:
    """The exit code of a backup to the file, or a restore of it, that gets the signal; `before`: its handler of it."""
    arguments = [str(int(number)), str(int(before)), command, str(file), "--data-dir", str(data)]
    return subprocess.run([sys.executable, "-c", SIGNALLED_WHILE_IT_COPIES, *arguments], check=False).returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_ended_leaves_nothing(data: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "backups" / "a.tar.gz"
    assert signalled(data, file, number, signal.SIG_DFL) == 128 + number
    assert list(file.parent.iterdir()) == []


def test_a_restore_that_is_ended_changes_nothing_and_can_be_repeated(run: Run, data: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "a.tar.gz", tmp_path / "restored"
    assert run("backup", str(file), "--data-dir", str(data)).code == 0
    assert signalled(restored, file, signal.SIGTERM, signal.SIG_DFL, "restore") == 128 + signal.SIGTERM
    assert not (restored / LEASE_KEY_FILE).exists()
    assert not any(one.is_dir() for one in restored.iterdir())
    assert run("restore", str(file), "--data-dir", str(restored)).code == 0
    assert (restored / LEASE_KEY_FILE).exists()


def test_a_database_that_a_service_uses_is_not_restored_into(run: Run, data: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "a.tar.gz", tmp_path / "restored"
    assert run("backup", str(file), "--data-dir", str(data)).code == 0
    restored.mkdir()
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(restored)})
    with database_lock(settings.database_url):
        ended = run("restore", str(file), "--data-dir", str(restored))
    assert ended.code == 1
    assert "another service process uses the database" in ended.err


@pytest.mark.slow
def test_a_backup_under_nohup_survives_the_end_of_its_terminal(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "backups" / "a.tar.gz"
    assert signalled(data, file, signal.SIGHUP, signal.SIG_IGN) == 0
    assert list(file.parent.iterdir()) == [file]
