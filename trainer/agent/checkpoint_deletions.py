"""Deletes the directories that the service names, and keeps the results until the service has them."""

import logging
import queue
import threading
import time
from collections.abc import Iterable
from typing import Any

from trainer.slot.checkpoints.checkpoint_removal import remove_directory

logger = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""When a deletion that has failed is tried again, if the service still names it."""

MAX_ERROR = 2_000


class CheckpointDeletions(threading.Thread):
    """Deletes one directory after the other. The methods are called from one other thread."""

    def __init__(self) -> None:
        super().__init__(name="paceline-deletions", daemon=True)
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._results: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._due_at: dict[int, float] = {}

    def add(self, deletions: Iterable[dict[str, Any]]) -> None:
        """As `trainer.wire.Deletion`. One that is under way, or has failed a moment ago, is left as it is."""
        named = {deletion["id"]: deletion for deletion in deletions}
        self._due_at = {id_: due_at for id_, due_at in self._due_at.items() if id_ in named}
        for id_, deletion in named.items():
            if time.monotonic() >= self._due_at.get(id_, 0.0):
                self._due_at[id_] = float("inf")
                self._queue.put(deletion)

    def take_results(self) -> dict[str, Any] | None:
        """What has become of deletions since the last call, as `trainer.wire.DeletionResults`. None for nothing."""
        results = [self._results.get_nowait() for _ in range(self._results.qsize())]
        if not results:
            return None
        failed = {id_: error for id_, error in results if error is not None}
        self._due_at |= dict.fromkeys(failed, time.monotonic() + RETRY_SECONDS)
        return {
            "deleted": [id_ for id_, error in results if error is None],
            "failed": [{"id": id_, "error": error[:MAX_ERROR]} for id_, error in failed.items()],
        }

    def run(self) -> None:
        while True:
            deletion = self._queue.get()
            error = None
            try:
                remove_directory(deletion["directory"])
            except Exception as problem:  # noqa: BLE001 - whatever a file system raises, the service gets to know
                error = f"{type(problem).__name__}: {problem}"
                logger.warning("%s cannot be deleted: %s", deletion["directory"], error)
            self._results.put((deletion["id"], error))
