"""Folders that processes lock while they use them, and the removal of those that only killed processes have used."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SCRATCH = "paceline-scratch-"

STARTING_SECONDS = 600.0
"""A process may be about to lock a folder of up to this age."""


def lock_in_use(folder: Path, make: Callable[[], Any], tidy: Callable[[], Any] | None = None) -> int:
    """Lock `folder` as used by this process, after `make()` if it does not exist.

    `tidy` is called, before others can lock the folder, if no other process uses it.
    Returns the file descriptor; `os.close` releases the lock. The kernel releases it when the process dies, so a folder
    without a lock is unused.
    """
    while True:
        if not folder.exists():
            make()
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if tidy is not None:
                    _tidy_if_unused(descriptor, folder, tidy)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            except BaseException:
                os.close(descriptor)
                raise
            if _is_at(descriptor, folder):
                return descriptor
            os.close(descriptor)  # the folder was removed before it was locked


def _tidy_if_unused(descriptor: int, folder: Path, tidy: Callable[[], Any]) -> None:
    """The exclusive lock is kept, for the caller to turn it into a shared one."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, folder):
            tidy()


def _is_at(descriptor: int, folder: Path) -> bool:
    return folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat())


def remove_unused(folders: Iterable[Path], remove: Callable[[Path], Any]) -> None:
    """Call `remove` for each folder that is old enough and not locked. It runs while the folder is locked."""
    for folder in folders:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if time.time() - os.fstat(descriptor).st_mtime > STARTING_SECONDS:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(folder)
            finally:
                os.close(descriptor)


class ScratchFolder:
    """The temporary directories of one attempt in one process, in a folder that goes with them.

    A killed process leaves its folder; the next one of this user on the node that needs one removes it. A copy of this
    object, in another process, has a folder of its own.
    """

    def __init__(self) -> None:
        self._made: tuple[Path, int] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["ScratchFolder"], tuple[()]]:
        return type(self), ()

    def new_directory(self) -> Path:
        with self._lock:
            self._made = self._made or _make_scratch_folder()
            return Path(tempfile.mkdtemp(dir=self._made[0]))

    def remove(self) -> None:
        """Remove all of its directories."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            shutil.rmtree(made[0], ignore_errors=True)
            os.close(made[1])


def _make_scratch_folder() -> tuple[Path, int]:
    prefix = f"{SCRATCH}{os.getuid()}-"
    remove_unused(Path(tempfile.gettempdir()).glob(f"{prefix}*"), shutil.rmtree)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    return folder, lock_in_use(folder, folder.mkdir)
