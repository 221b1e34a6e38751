"""Temporary directories that go with their attempt, also if its process is killed."""

import copy
import os
from pathlib import Path

import pytest

from trainer.unused_folders import ScratchFolder


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def begun_long_ago(scratch: ScratchFolder) -> Path:
    """A folder with one directory."""
    directory = scratch.new_directory()
    (directory / "model").touch()
    os.utime(directory.parent, (1, 1))
    return directory.parent


def test_all_directories_of_an_attempt_are_removed_together(tmp_path: Path) -> None:
    scratch = ScratchFolder()
    scratch.remove()  # there is none
    assert list(tmp_path.iterdir()) == []
    first, second = scratch.new_directory(), scratch.new_directory()
    assert first.parent == second.parent
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    used = begun_long_ago(in_use := ScratchFolder())
    left = begun_long_ago(killed := ScratchFolder())
    assert killed._made
    os.close(killed._made[1])  # as the kernel does
    own = ScratchFolder().new_directory().parent
    assert set(tmp_path.iterdir()) == {used, own}, left
    in_use.remove()


def test_a_copy_has_a_folder_of_its_own() -> None:
    scratch = ScratchFolder()
    directory = scratch.new_directory()
    copied = copy.copy(scratch)  # as pickle does
    other = copied.new_directory()
    copied.remove()
    assert (directory.exists(), other.exists()) == (True, False)
    scratch.remove()
