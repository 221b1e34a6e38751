"""Checkpoints that are not needed any more leave the storage, off everybody's way."""

import logging
import queue
import threading
from collections.abc import Callable, Collection
from functools import partial

from pyarrow.fs import FileSelector, FileSystem, FileType

logger = logging.getLogger("paceline")


class DirectoryRemover(threading.Thread):
    """Removes directories one after the other. What can't be removed is logged and left."""

    def __init__(self) -> None:
        super().__init__(name="paceline-disposal", daemon=True)
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def put(self, uri: str) -> None:
        """`uri`: a path, or whatever URI pyarrow has a filesystem for, as Ray Train takes it."""
        self._tasks.put(partial(remove, uri))

    def remove_all_except(self, kept: Collection[str], folder: str) -> None:
        """The directories in the folder, a URI, but for those of these names."""
        self._tasks.put(partial(remove_all_but, kept, folder))

    def run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def close(self, seconds: float) -> None:
        """End it, after what is waiting if that takes no longer than `seconds`."""
        self._tasks.put(None)
        self.join(seconds)


def remove(uri: str) -> None:
    try:
        storage, path = FileSystem.from_uri(uri)
        storage.delete_dir(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        logger.warning("the checkpoint %s is not needed any more, but could not be removed: %s", uri, error)


def remove_all_but(kept: Collection[str], folder: str) -> None:
    try:
        storage, path = FileSystem.from_uri(folder)
        for entry in storage.get_file_info(FileSelector(path, allow_not_found=True)):
            if entry.type is FileType.Directory and entry.base_name not in kept:
                storage.delete_dir(entry.path)
    except (OSError, ValueError) as error:
        logger.warning("what is not needed in %s could not be removed: %s", folder, error)
