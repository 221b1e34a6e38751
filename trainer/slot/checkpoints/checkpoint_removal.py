"""Removes checkpoints that are no longer needed, in a thread of its own, so that no training waits for the storage."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from pyarrow.fs import FileSelector, FileSystem, FileType

logger = logging.getLogger("paceline")

RETRY_SECONDS = (1.0, 5.0, 20.0, 60.0, 240.0)
"""How long after a failure the next try comes: the storage may be away for a while."""

LAST_RETRY_SECONDS = 1.0
"""The time between the last tries, of a remover that closes."""

Task = Callable[[], bool | None]
"""False, or any exception: it failed and is tried again."""


@dataclass(frozen=True)
class Removal:
    """Of one directory."""

    uri: str

    def __call__(self) -> bool:
        return remove(self.uri)


@dataclass
class RemovalRetry:
    task: Task
    due_at: float
    failures: int = 1


class DirectoryRemover(threading.Thread):
    """Removes directories one after the other.

    A directory that cannot be removed is logged, tried again after each of `retry_seconds`, and then left.
    """

    def __init__(self, retry_seconds: Collection[float] = RETRY_SECONDS) -> None:
        super().__init__(name="paceline-removal", daemon=True)
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._delays = list(retry_seconds)
        self._retries: list[RemovalRetry] = []
        self._end = float("inf")

    def remove(self, uri: str) -> None:
        """Remove a directory soon. `uri`: a path, or a URI for which pyarrow has a filesystem, as in Ray Train."""
        self._tasks.put(Removal(uri))

    def remove_all_except(self, names: Collection[str], folder: str) -> None:
        """Remove, soon, the directories in the folder, a URI, that have other names."""
        self._tasks.put(partial(remove_all_except, names, folder))

    def keep(self, uri: str) -> None:
        """A directory has been saved anew, under a name that it had before: what has failed is not tried again."""
        self._tasks.put(partial(self._drop_retries, Removal(uri)))

    def run_soon(self, task: Task) -> None:
        """Remove something else than checkpoints."""
        self._tasks.put(task)

    @property
    def has_work(self) -> bool:
        """Whether something is still to be removed, or to be tried again."""
        return self._tasks.unfinished_tasks > 0 or bool(self._retries)

    def run(self) -> None:
        while (task := self._next()) is not None:
            if not _succeeds(task) and self._delays:
                self._retries.append(RemovalRetry(task, time.monotonic() + self._delays[0]))
            self._tasks.task_done()
        while self._retry_all() and (left := self._end - time.monotonic()) > 0:
            time.sleep(min(LAST_RETRY_SECONDS, left))

    def _next(self) -> Task | None:
        """Return the next task; meanwhile repeat what has failed and is due. None: it is closed."""
        while True:
            due_in = min((one.due_at - time.monotonic() for one in self._retries), default=None)
            try:
                return self._tasks.get(timeout=None if due_in is None else max(0.0, due_in))
            except queue.Empty:
                self._repeat_due()

    def _repeat_due(self) -> None:
        now, left = time.monotonic(), list[RemovalRetry]()
        for retry in self._retries:
            if retry.due_at > now:
                left.append(retry)
            elif not _succeeds(retry.task) and retry.failures < len(self._delays):
                left.append(RemovalRetry(retry.task, now + self._delays[retry.failures], retry.failures + 1))
        self._retries = left

    def _retry_all(self) -> bool:
        """Return whether something has failed again."""
        self._retries = [one for one in self._retries if not _succeeds(one.task)]
        return bool(self._retries)

    def _drop_retries(self, of: Removal) -> None:
        self._retries = [one for one in self._retries if one.task != of]

    def close(self, seconds: float) -> None:
        """End the thread, and wait at most `seconds` for what it still has to remove, or to try again."""
        self._end = time.monotonic() + seconds
        self._tasks.put(None)
        self.join(seconds)


def _succeeds(task: Task) -> bool:
    try:
        return task() is not False
    except Exception:  # the thread must live on, whatever a file system raises
        logger.exception("something that is no longer needed could not be removed")
        return False


def delete_directory(uri: str) -> None:
    """Delete a directory, if it exists. Raises what the file system raises."""
    storage, path = FileSystem.from_uri(uri)
    with contextlib.suppress(FileNotFoundError):
        storage.delete_dir(path)


def remove(uri: str) -> bool:
    """Return whether the directory is gone."""
    try:
        delete_directory(uri)
    except (OSError, ValueError) as error:
        logger.warning("the checkpoint %s is no longer needed, but could not be removed: %s", uri, error)
        return False
    return True


def remove_all_except(names: Collection[str], folder: str) -> bool:
    """Return whether all others are gone."""
    try:
        storage, path = FileSystem.from_uri(folder)
        for entry in storage.get_file_info(FileSelector(path, allow_not_found=True)):
            if entry.type is FileType.Directory and entry.base_name not in names:
                storage.delete_dir(entry.path)
    except (OSError, ValueError) as error:
        logger.warning("unfinished checkpoints in %s could not be removed: %s", folder, error)
        return False
    return True
