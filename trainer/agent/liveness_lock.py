"""How an agent shows that it lives to those who come after it on the same disk: by a lock on a file of its own.

A lock ends with its process, whatever ended that, and is seen from every container of the machine, where the number of
a process says nothing. It is believed on the machine's own disks alone: elsewhere two machines may not see each other's
locks, or one that is cut off from the storage may lose its lock and live on.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from pathlib import Path
from typing import TextIO

from trainer.agent.process_identity import Instance, boot

logger = logging.getLogger(__name__)

LOCAL = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"})
"""Types of file systems that one kernel has for itself."""

STALE_SECONDS = 7 * 86_400.0
"""What killed agents leave is removed when nobody can ask for it any more."""


class LivenessLock:
    """Those of the agents that share `directory`; None: nobody shows any, and nobody is known to be dead."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory / "agents" if directory is not None else None
        self._held: TextIO | None = None

    def show(self, instance: Instance) -> None:
        """Until this process ends, or `withdraw`. To be done before anybody hears of this instance."""
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if is_local(self._directory):
                _clean(self._directory)
                self._held = _locked(self._directory / _name(instance))
        except OSError as error:
            logger.info("no sign of life can be left at %s: %s", self._directory, error)

    def withdraw(self) -> None:
        """For an agent that has given its name back."""
        if self._held is not None:
            Path(self._held.name).unlink(missing_ok=True)
            self._held.close()
            self._held = None

    def is_known_dead(self, instance: Instance) -> bool:
        """Whether it is known to be dead: it has left a sign here, and holds it no more."""
        return self._directory is not None and _is_let_go(self._directory / _name(instance))

    def forget(self, instance: Instance) -> None:
        """It is dead, and has no name any more that another might want."""
        if self._directory is not None and self.is_known_dead(instance):
            (self._directory / _name(instance)).unlink(missing_ok=True)


def is_local(directory: Path) -> bool:
    """Whether the directory is on a file system that no other machine can have in use. False where nobody can say."""
    path, kind = str(directory.resolve()), ""
    longest = -1
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split()[4])
        if os.path.commonpath([path, point]) == point and len(point) >= longest:  # the last one covers those before
            longest, kind = len(point), source.split()[0]
    return kind in LOCAL


def _name(instance: Instance) -> str:
    return hashlib.sha256(json.dumps(instance, sort_keys=True).encode()).hexdigest()[:32] + ".lock"


def _locked(path: Path) -> TextIO:
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        path.unlink()  # a file that nobody holds would say that this process is dead
        file.close()
        raise
    file.write(_mark(file))
    file.flush()
    return file


def _mark(file: TextIO) -> str:
    """What no copy of the file has in common with it: an unlocked copy would say that a living process is dead."""
    return f"{boot()} {os.fstat(file.fileno()).st_ino}"


def _clean(directory: Path) -> None:
    for sign in directory.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):  # somebody else was faster
            if time.time() - sign.stat().st_mtime > STALE_SECONDS and _let_go(sign) is not None:
                sign.unlink()


def _is_let_go(sign: Path) -> bool:
    found = _let_go(sign)
    return found is not None and found[0] == found[1]


def _let_go(sign: Path) -> tuple[str, str] | None:
    """What a sign that nobody holds says, and what the same sign, left since the machine's start, would say."""
    try:
        with sign.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return (file.read(), _mark(file)) if is_local(sign.parent) else None
    except OSError:  # there is none, somebody holds it, or this file system has no locks
        return None
