"""Checkpoints that are not needed any more leave the storage, off everybody's way."""

import logging
import queue
import threading

from pyarrow.fs import FileSystem

logger = logging.getLogger("paceline")


class Disposal(threading.Thread):
    """Removes directories one after the other. What can't be removed is logged and left."""

    def __init__(self) -> None:
        super().__init__(name="paceline-disposal", daemon=True)
        self._uris: queue.Queue[str | None] = queue.Queue()

    def put(self, uri: str) -> None:
        """`uri`: a path, or whatever URI pyarrow has a filesystem for, as Ray Train takes it."""
        self._uris.put(uri)

    def run(self) -> None:
        while (uri := self._uris.get()) is not None:
            remove(uri)

    def close(self, seconds: float) -> None:
        """End it, after what is waiting if that takes no longer than `seconds`."""
        self._uris.put(None)
        self.join(seconds)


def remove(uri: str) -> None:
    try:
        storage, path = FileSystem.from_uri(uri)
        storage.delete_dir(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        logger.warning("the checkpoint %s is not needed any more, but could not be removed: %s", uri, error)
