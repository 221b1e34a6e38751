"""Removes checkpoints that are no longer needed, in a thread of its own, so that no training waits for the storage."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from trainer.slot.checkpoints import local_removal

logger = logging.getLogger("paceline")

RETRY_SECONDS = (1.0, 5.0, 20.0, 60.0, 240.0)
"""How long after a failure the next try comes: the storage may be away for a while."""

LAST_RETRY_SECONDS = 1.0
"""The time between the last tries, of a remover that closes."""

Task = Callable[[], None]
"""What it raises is logged, and it is tried again."""


@dataclass(frozen=True)
class PendingTask:
    """`what` begins the line of log that says that it could not be removed."""

    task: Task
    what: str
    due_at: float
    failures: int = 0


class CheckpointRemover(threading.Thread):
    """Removes the directories of checkpoints one after the other.

    A directory that cannot be removed is logged, tried again after each of `retry_seconds`, and then left.
    """

    def __init__(self, retry_seconds: Sequence[float] = RETRY_SECONDS) -> None:
        super().__init__(name="paceline-removal", daemon=True)
        self._changed = threading.Condition()
        self._pending: list[PendingTask] = []
        self._running: Task | None = None
        self._delays = retry_seconds
        self._end: float | None = None

    def remove(self, uri: str) -> None:
        """Remove a directory soon. `uri`: a path, or a URI for which pyarrow has a filesystem, as in Ray Train."""
        self.run_soon(partial(remove_directory, uri), f"the checkpoint {uri} is no longer needed, but")

    def remove_all_except(self, names: Collection[str], folder: str) -> None:
        """Remove, soon, the directories in the folder, a URI, that have other names."""
        self.run_soon(partial(remove_all_except, names, folder), f"unfinished checkpoints in {folder}")

    def run_soon(self, task: Task, what: str) -> None:
        """Remove something else than checkpoints. `what` says what for the log."""
        with self._changed:
            self._pending.append(PendingTask(task, what, time.monotonic()))
            self._changed.notify_all()

    @property
    def has_work(self) -> bool:
        """Whether something is still to be removed, or to be tried again."""
        with self._changed:
            return self._running is not None or bool(self._pending)

    def close(self, seconds: float) -> None:
        """End the thread, and wait at most `seconds` for what it still has to remove, or to try again."""
        now = time.monotonic()
        with self._changed:
            self._end = now + seconds
            self._pending = [replace(one, due_at=min(one.due_at, now)) for one in self._pending]
            self._changed.notify_all()
        self.join(seconds)

    def run(self) -> None:
        while (one := self._next()) is not None:
            is_done = _succeeds(one)
            with self._changed:
                self._running = None
                if not is_done:
                    self._retry(one)
                self._changed.notify_all()

    def _next(self) -> PendingTask | None:
        """Wait for the task that is due first. None: the remover is closed, and has nothing to do or no time left."""
        with self._changed:
            while True:
                now, first = time.monotonic(), min(self._pending, key=lambda one: one.due_at, default=None)
                if self._end is not None and (first is None or now >= self._end):
                    return None
                if first is not None and first.due_at <= now:
                    self._pending.remove(first)
                    self._running = first.task
                    return first
                self._changed.wait(None if first is None else first.due_at - now)

    def _retry(self, one: PendingTask) -> None:
        if self._end is not None:
            delay = LAST_RETRY_SECONDS
        elif one.failures < len(self._delays):
            delay = self._delays[one.failures]
        else:
            logger.warning("it is left there after %d tries", one.failures + 1)
            return
        self._pending.append(replace(one, due_at=time.monotonic() + delay, failures=one.failures + 1))


def _succeeds(one: PendingTask) -> bool:
    """The thread must live on, whatever a file system raises."""
    try:
        one.task()
    except (OSError, ValueError) as error:
        logger.warning("%s could not be removed: %s", one.what, error)
        return False
    except Exception:
        logger.exception("%s could not be removed", one.what)
        return False
    return True


def remove_directory(uri: str) -> None:
    """Remove a directory, if it exists. Raises what the file system raises."""
    storage, path = FileSystem.from_uri(uri)
    if isinstance(storage, LocalFileSystem):
        local_removal.remove_directory(Path(path))
    else:
        _remove_remote_directory(storage, path)


def remove_all_except(names: Collection[str], folder: str) -> None:
    """Remove the directories in the folder, a URI, that have other names. Raises what the file system raises."""
    storage, path = FileSystem.from_uri(folder)
    if isinstance(storage, LocalFileSystem):
        local_removal.remove_directories_except(names, Path(path))
        return
    for entry in storage.get_file_info(FileSelector(path, allow_not_found=True)):
        if entry.type is FileType.Directory and entry.base_name not in names:
            _remove_remote_directory(storage, entry.path)


def _remove_remote_directory(storage: FileSystem, path: str) -> None:
    """Remove it, if it exists. Of one that does not, Google's buckets have another error than others."""
    try:
        storage.delete_dir(path)
    except OSError:
        if storage.get_file_info(path).type is not FileType.NotFound:
            raise
