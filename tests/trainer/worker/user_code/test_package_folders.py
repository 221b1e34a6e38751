"""The unpacked packages in a node's temporary directory: kept while they are used, removed when their slot is dead."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.worker.user_code.user_code import lock_package, unpack

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from pathlib import Path
from trainer.worker.user_code.user_code import lock_package
lock_package(Path(sys.argv[1]), "train.py", lambda: b"x = 1")
print("held", flush=True)
time.sleep(600)
"""


def package(folder: Path, *, old: bool) -> Path:
    unpack(b"x = 1", "train.py", folder)
    if old:
        os.utime(folder, (0, 0))
    return folder


def lock(folder: Path) -> int:
    return lock_package(folder, "train.py", lambda: b"x = 1")


def test_folders_of_killed_processes_are_removed_and_used_ones_are_kept(tmp_path: Path) -> None:
    used, young = package(tmp_path / "paceline-slot.a.1", old=True), package(tmp_path / "paceline-slot.a.2", old=False)
    killed, foreign = package(tmp_path / "paceline-slot.a.3", old=True), package(tmp_path / "another", old=True)
    ours = tmp_path / "paceline-slot.a.4"
    command = [sys.executable, "-c", HOLDER, str(used)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.close(lock(ours))
        assert set(tmp_path.iterdir()) == {used, young, foreign, ours}
        process.kill()
    assert not killed.exists()
    later = tmp_path / "paceline-slot.a.5"
    os.close(lock(later))
    assert not used.exists()


def test_a_folder_that_was_removed_is_filled_again(tmp_path: Path) -> None:
    folder, another = tmp_path / "paceline-slot.a.1", tmp_path / "paceline-slot.a.2"
    os.close(lock(folder))
    os.utime(folder, (0, 0))
    os.close(lock(another))
    assert not folder.exists()
    os.close(lock(folder))
    assert (folder / "train.py").exists()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_a_disk_that_fails_at_the_last_step_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Otherwise the package would be unpacked again without end."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match=os.strerror(code)):
        unpack(b"x = 1", "train.py", tmp_path / "paceline-slot.a.1")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_first_has_unpacked_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = package(tmp_path / "paceline-slot.a.1", old=False)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert unpack(b"x = 2", "train.py", first) == first
    assert (first / "train.py").read_bytes() == b"x = 1"
