"""The directory in which a lone rank's command saves, and the states in it that its reports get."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from ray.train import Checkpoint

from trainer.worker.commands.links import link_files, remove_links
from trainer.worker.commands.snapshot import Later, Line, Snapshot, Unchanged, belongs, files_in

MAX_WAITING_SNAPSHOTS = 2
MAX_WAITING_BYTES = 256_000_000
"""More snapshots than that wait for their reports only while they have less than so much together."""


class CheckpointDirectory:
    """The directory in which the command saves, with what the command finds in it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._saved = files_in(directory)
        self._lock = threading.Lock()
        self._waiting: dict[Path, int] = {}

    @contextlib.contextmanager
    def changed(self) -> Iterator[Checkpoint | None]:
        """Yield the checkpoint if the command has changed a file since the last one, else None.

        It has links to the files as they are now: the command may continue meanwhile, and replace or remove them.
        """
        with self._lock:
            state = files_in(self.path)
            links = link_files(self.path, state) if state and state != self._saved else None
            self._saved = state
        if links is None:
            yield None
            return
        try:
            yield Checkpoint.from_directory(str(links))
        finally:
            remove_links(links)

    def take(self, line: Line) -> Snapshot | Unchanged | Later:
        """Return the state that belongs to the line. The caller gives it back by `release`."""
        with self._lock:
            state = files_in(self.path)
            if not state or state == self._saved:
                return Unchanged()
            size = sum(size for _, size, _ in state)
            if self._has_no_room_for(size):
                return Later()
            links = link_files(self.path, state)
            if not belongs(links, line, self.path):
                remove_links(links)
                return Later()
            self._saved = files_in(links)
            self._waiting[links] = size
            return Snapshot(links, line.at_ns)

    def release(self, snapshot: Snapshot) -> None:
        with self._lock:
            del self._waiting[snapshot.path]
        remove_links(snapshot.path)

    def _has_no_room_for(self, size: int) -> bool:
        is_many = len(self._waiting) >= MAX_WAITING_SNAPSHOTS
        return is_many and sum(self._waiting.values()) + size > MAX_WAITING_BYTES
