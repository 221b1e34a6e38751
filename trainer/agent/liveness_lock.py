"""Liveness locks: each agent locks a file of its own, so that agents on the same disk can see whether it is alive.

The kernel releases a lock when its process ends, for whatever reason. A lock is visible from every container of the
machine, where a process id means nothing. Only file systems local to the machine count: on others, two machines may not
see each other's locks, or a machine that is cut off from the storage may lose its lock and live on.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import TextIO

from trainer.agent.process_identity import Instance, boot_id

logger = logging.getLogger(__name__)

LOCAL_FILE_SYSTEMS = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"}
)
"""The types of file systems that one kernel uses alone."""

STALE_SECONDS = 7 * 86_400.0
"""The files of killed agents are removed after this time, when no agent can need them any more."""


class LivenessLock:
    """The lock of this process, and those of the agents that share `directory`.

    Without a directory there are no locks, and no agent is known to be dead.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory / "agents" if directory is not None else None
        self._held: TextIO | None = None

    def acquire(self, instance: Instance) -> None:
        """Hold the lock until this process ends, or `release`. To be called before this instance is known to others."""
        if self._directory is None:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # it is another user's
                self._directory.chmod(0o700)
            if is_local(self._directory):
                _remove_stale(self._directory)
                self._held = _lock(self._directory / _file_name(instance))
        except OSError as error:
            message = "cannot lock %s: %s; the next agent of this name has to wait for the lease to expire"
            logger.info(message, self._directory, error)

    def release(self) -> None:
        """For an agent that has released its name."""
        if self._held is not None:
            Path(self._held.name).unlink(missing_ok=True)
            self._held.close()
            self._held = None

    def is_known_dead(self, instance: Instance) -> bool:
        """Whether the instance has a lock file here and no longer holds the lock."""
        return self._directory is not None and _is_released(self._directory / _file_name(instance))

    def remove_dead(self, instance: Instance) -> None:
        """Remove the lock file of a dead instance whose name is taken."""
        if self._directory is not None and self.is_known_dead(instance):
            (self._directory / _file_name(instance)).unlink(missing_ok=True)


def is_local(directory: Path) -> bool:
    """Whether no other machine can use the directory's file system. False if that is unknown."""
    path, kind = str(directory.resolve()), ""
    longest = -1
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split()[4])
        if os.path.commonpath([path, point]) == point and len(point) >= longest:  # a later mount covers earlier ones
            longest, kind = len(point), source.split()[0]
    return kind in LOCAL_FILE_SYSTEMS


def _file_name(instance: Instance) -> str:
    return hashlib.sha256(json.dumps(instance, sort_keys=True).encode()).hexdigest()[:32] + ".lock"


def _lock(path: Path) -> TextIO:
    file = open(path, "w", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - only `open` takes an opener
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        path.unlink()  # without a lock, the file would say that this process is dead
        file.close()
        raise
    file.write(_fingerprint(file))
    file.flush()
    return file


def _fingerprint(file: TextIO) -> str:
    """Different for each copy of the file: an unlocked copy would say that a living process is dead."""
    return f"{boot_id()} {os.fstat(file.fileno()).st_ino}"


def _remove_stale(directory: Path) -> None:
    for path in directory.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):  # another agent has removed it
            if time.time() - path.stat().st_mtime > STALE_SECONDS and _read_unlocked(path) is not None:
                path.unlink()


def _is_released(path: Path) -> bool:
    found = _read_unlocked(path)
    return found is not None and found[0] == found[1]


def _read_unlocked(path: Path) -> tuple[str, str] | None:
    """The content of a lock file that no process has locked, and the fingerprint that it must equal to count."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return (file.read(), _fingerprint(file)) if is_local(path.parent) else None
    except OSError:  # the file does not exist, is locked, or its file system has no locks
        return None
