"""Removes checkpoints that are no longer needed, in a thread of its own, so that no training waits for the storage."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection
from functools import partial

from pyarrow.fs import FileSelector, FileSystem, FileType

logger = logging.getLogger("paceline")


class DirectoryRemover(threading.Thread):
    """Removes directories one after the other. A directory that cannot be removed is logged and left."""

    def __init__(self) -> None:
        super().__init__(name="paceline-removal", daemon=True)
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def remove(self, uri: str) -> None:
        """Remove a directory soon. `uri`: a path, or a URI for which pyarrow has a filesystem, as in Ray Train."""
        self._tasks.put(partial(remove, uri))

    def remove_all_except(self, names: Collection[str], folder: str) -> None:
        """Remove, soon, the directories in the folder, a URI, that have other names."""
        self._tasks.put(partial(remove_all_except, names, folder))

    def run_soon(self, task: Callable[[], None]) -> None:
        """Remove something else than checkpoints."""
        self._tasks.put(task)

    def run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def close(self, seconds: float) -> None:
        """End the thread, and wait at most `seconds` for what it still has to remove."""
        self._tasks.put(None)
        self.join(seconds)


def delete_directory(uri: str) -> None:
    """Delete a directory, if it exists. Raises what the file system raises."""
    storage, path = FileSystem.from_uri(uri)
    with contextlib.suppress(FileNotFoundError):
        storage.delete_dir(path)


def remove(uri: str) -> None:
    try:
        delete_directory(uri)
    except (OSError, ValueError) as error:
        logger.warning("the checkpoint %s is no longer needed, but could not be removed: %s", uri, error)


def remove_all_except(names: Collection[str], folder: str) -> None:
    try:
        storage, path = FileSystem.from_uri(folder)
        for entry in storage.get_file_info(FileSelector(path, allow_not_found=True)):
            if entry.type is FileType.Directory and entry.base_name not in names:
                storage.delete_dir(entry.path)
    except (OSError, ValueError) as error:
        logger.warning("unfinished checkpoints in %s could not be removed: %s", folder, error)
