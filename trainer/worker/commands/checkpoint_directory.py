"""The directory in which a command saves, and the states in it that its reports get."""

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import ray.train
from ray.train import Checkpoint

from trainer.worker.commands.snapshot import Later, Line, Snapshot, State, Unchanged, files_in

LINK_ATTEMPTS = 20
"""How often the files are looked at until none is replaced meanwhile."""

MAX_WAITING_SNAPSHOTS = 2
MAX_WAITING_BYTES = 256_000_000
"""More snapshots than that wait for their reports only while they have less than so much together."""


class CheckpointDirectory:
    """The directory in which the command saves. It begins with the checkpoint to resume from."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        if (checkpoint := ray.train.get_checkpoint()) is not None:
            checkpoint.to_directory(str(directory))
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
            links = self._link(state) if state and state != self._saved else None
            self._saved = state
        if links is None:
            yield None
            return
        try:
            yield Checkpoint.from_directory(str(links))
        finally:
            shutil.rmtree(links.parent)

    def take(self, line: Line) -> Snapshot | Unchanged | Later:
        """Return the state that belongs to the line. The caller gives it back by `release`."""
        with self._lock:
            state = files_in(self.path)
            if not state or state == self._saved:
                return Unchanged()
            size = sum(size for _, size, _ in state)
            if self._has_no_room_for(size):
                return Later()
            links = self._link(state)
            if not self._belongs(links, line):
                shutil.rmtree(links.parent)
                return Later()
            self._saved = files_in(links)
            self._waiting[links] = size
            return Snapshot(links, line.at_ns)

    def release(self, snapshot: Snapshot) -> None:
        with self._lock:
            del self._waiting[snapshot.path]
        shutil.rmtree(snapshot.path.parent)

    def _has_no_room_for(self, size: int) -> bool:
        is_many = len(self._waiting) >= MAX_WAITING_SNAPSHOTS
        return is_many and sum(self._waiting.values()) + size > MAX_WAITING_BYTES

    def _belongs(self, links: Path, line: Line) -> bool:
        linked = files_in(links)
        newest = max((modified for _, _, modified in linked), default=0)
        if newest > line.at_ns:
            return False
        if newest < line.at_ns and line.is_certain:
            return True
        # The clock ticks every few milliseconds: a file of the line's tick may be of before the line or of after it.
        return line.is_quiet() and files_in(self.path) == linked

    def _link(self, state: State) -> Path:
        """Return a folder with links to the files. Its parent has nothing else, and is the caller's to remove."""
        folder = Path(tempfile.mkdtemp(dir=self.path.parent))
        for number in range(LINK_ATTEMPTS):
            links = folder / str(number)
            links.mkdir()
            gone = [path for path, *_ in state if not _link(self.path / path, links / path)]
            if state and not gone:
                break
            state = files_in(self.path)  # a file was replaced while its name was read
        return links


def _link(path: Path, link: Path) -> bool:
    """Return False if there is no such file any more. Where the file system has no links, it is copied."""
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        link.hardlink_to(path.resolve())
    except FileNotFoundError:
        return False
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, link)
        return link.exists()
    return True
