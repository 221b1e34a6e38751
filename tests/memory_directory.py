"""A pytest plugin that keeps temporary files in memory; `TMPDIR=/tmp make test` keeps them on disk, and afterwards.

A PostgreSQL database has 300 files, and a disk takes ten times as long to create and to remove them.
"""

import os
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest

MEMORY = Path("/dev/shm")  # noqa: S108
PREFIX = "pl-"
"""Short: Ray puts sockets below the directory, and the path of a socket may have 107 bytes."""
ENOUGH_BYTES = 8 * 2**30
"""Ray's object stores need their share of the same memory."""
directory = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH_BYTES:
        return
    _remove_directories_of_killed_runs()
    config.stash[directory] = MEMORY / f"{PREFIX}{os.getpid()}"
    shutil.rmtree(config.stash[directory], ignore_errors=True)  # of a killed run that had the same process id
    config.stash[directory].mkdir()
    # The workers of pytest-xdist and all processes that tests start inherit it.
    os.environ["TMPDIR"] = str(config.stash[directory])
    tempfile.tempdir = None  # looks at the environment again


def pytest_unconfigure(config: pytest.Config) -> None:
    if own := config.stash.get(directory, None):
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(own, ignore_errors=True)  # a process that is still ending may write into it


def _remove_directories_of_killed_runs() -> None:
    for path in MEMORY.glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX)
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)
