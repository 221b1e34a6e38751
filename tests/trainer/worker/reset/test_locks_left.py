"""A file that an attempt leaves locked keeps its process from being used again: the next one would wait for it."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.worker.reset.open_files import open_files, why_files_are_locked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cache.lock"
    path.touch()
    return path


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_a_file_that_stays_locked_is_named(path: Path, lock: Callable[[int, int], None]) -> None:
    known = open_files()
    descriptor = os.open(path, os.O_RDWR)
    assert why_files_are_locked(known) is None
    lock(descriptor, fcntl.LOCK_EX)
    assert why_files_are_locked(known) == f"the training function left files locked: {path}"
    assert why_files_are_locked(open_files()) is None
    lock(descriptor, fcntl.LOCK_UN)
    assert why_files_are_locked(known) is None
    os.close(descriptor)


def test_one_with_the_descriptor_of_a_file_from_before_the_trial_is_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    before = os.open(tmp_path / "other", os.O_RDWR)
    known = open_files()
    os.close(before)
    descriptor = os.open(path, os.O_RDWR)
    assert descriptor == before
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert why_files_are_locked(known) is not None
    os.close(descriptor)


def test_the_lock_of_a_directory_is_that_of_its_user_alone(tmp_path: Path) -> None:
    """As the working directory and the package of an attempt are locked until after the reset."""
    known = open_files()
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert why_files_are_locked(known) is None
    os.close(descriptor)


def test_a_posix_lock_for_reading_may_stay(path: Path) -> None:
    known = open_files()
    descriptor = os.open(path, os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_SH)
    assert why_files_are_locked(known) is None
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert why_files_are_locked(known) == f"the training function left files locked: {path}"
    os.close(descriptor)
