"""Removes folders that only killed processes have used: the kernel has released their locks."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

STARTING_SECONDS = 600.0
"""A process may be about to lock a folder of up to this age."""


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
