"""The unpacked packages in a node's temporary directory: kept while they are used, removed when their slot is dead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.worker.user_code import lock_folder, unpack

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from pathlib import Path
from trainer.worker.user_code import lock_folder
lock_folder(Path(sys.argv[1]), lambda: None)
print("held", flush=True)
time.sleep(600)
"""


def package(folder: Path, *, old: bool) -> Path:
    unpack(b"x = 1", "train.py", folder)
    if old:
        os.utime(folder, (0, 0))
    return folder


def test_folders_of_killed_processes_are_removed_and_used_ones_are_kept(tmp_path: Path) -> None:
    used, young = package(tmp_path / "paceline-slot.a.1", old=True), package(tmp_path / "paceline-slot.a.2", old=False)
    killed, foreign = package(tmp_path / "paceline-slot.a.3", old=True), package(tmp_path / "another", old=True)
    ours = tmp_path / "paceline-slot.a.4"
    command = [sys.executable, "-c", HOLDER, str(used)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.close(lock_folder(ours, lambda: package(ours, old=False)))
        assert set(tmp_path.iterdir()) == {used, young, foreign, ours}
        process.kill()
    assert not killed.exists()
    later = tmp_path / "paceline-slot.a.5"
    os.close(lock_folder(later, lambda: package(later, old=False)))
    assert not used.exists()


def test_a_folder_that_was_removed_is_filled_again(tmp_path: Path) -> None:
    folder, another = tmp_path / "paceline-slot.a.1", tmp_path / "paceline-slot.a.2"
    os.close(lock_folder(folder, lambda: package(folder, old=True)))
    os.close(lock_folder(another, lambda: package(another, old=False)))
    assert not folder.exists()
    os.close(lock_folder(folder, lambda: package(folder, old=True)))
    assert (folder / "train.py").exists()
