"""Files that a trial has left open: with a lock that the next trial would wait for, or too many of them."""

import contextlib
import os
import resource
import stat
from pathlib import Path

OpenFile = tuple[int, int, int]
"""A descriptor, and the device and inode of its file."""


def open_files() -> frozenset[OpenFile]:
    """Directories are left out: this process locks those of an attempt itself."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - of many, it takes less
        with contextlib.suppress(OSError):  # that of the listing itself
            state = os.fstat(int(name))
            if stat.S_ISREG(state.st_mode):
                found.append((int(name), state.st_dev, state.st_ino))
    return frozenset(found)


def count_descriptors() -> int:
    """The number of this process's descriptors, with that of the listing itself."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of many, it takes less


def why_too_many_are_open(known: int) -> str | None:
    """`known`: how many descriptors there were before the trial. What several trials leave open would add up.

    The limit would end a later one, which a process of its own would not have: so half of it is left for a trial.
    """
    count, (limit, _) = count_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    if count <= max(known, limit / 2):
        return None
    return f"the training function left {count - known:,} files open: {count:,} of at most {limit:,}"


def why_files_are_locked(known: frozenset[OpenFile]) -> str | None:
    """A trial that is ended in `ray.train.report` may leave its lock. To close a file of a library would break that."""
    locked = [path for descriptor, *_ in open_files() - known if (path := _locked_path(descriptor)) is not None]
    return f"the training function left files locked: {', '.join(sorted(locked))}" if locked else None


def _locked_path(descriptor: int) -> str | None:
    """None without a lock (proc_pid_fdinfo(5)), or if another thread has closed it.

    POSIX locks for reading are left out: an open SQLite connection holds one, and this process may lock the file again.
    """
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        locks = [set(line.split()) for line in lines if line.startswith("lock:")]
        if any(not {"POSIX", "READ"} <= words for words in locks):
            return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return None
