"""A rank's part of the checkpoints that all ranks of a command save together, into one folder.

Each rank has a directory of its own, which begins with the files of all ranks from the checkpoint to resume from. So
each file of a checkpoint has one rank that saves it: the rank that has written it, and rank 0 for what has stayed as it
was restored. The ranks tell each other what they have written and removed.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.train import Checkpoint

from trainer.worker.commands.disk_errors import naming_disk_errors
from trainer.worker.commands.links import link_files, remove_links
from trainer.worker.commands.snapshot import NOT_SAVED, Later, Line, Snapshot, State, belongs, files_in

AllGather = Callable[[Any], list[Any]]
"""Gets this rank's value, and returns those of all ranks in their order; none when the attempt is over."""


@dataclass(frozen=True)
class RankFiles:
    """What a rank says of its directory, by paths relative to it.

    `written`: the files that it has written in this attempt, with the number of the save that has each as it is now, or
    would be its first. `removed`: those it has found in its directory, and removed. `is_changed`: since the last save.
    """

    is_intact: bool
    is_changed: bool
    written: dict[str, int]
    removed: set[str]


class CheckpointParts:
    """The directory in which this rank's command saves, and the part of it in each checkpoint."""

    def __init__(self, directory: Path, rank: int, all_gather: AllGather) -> None:
        self._path, self._rank, self._all_gather = directory, rank, all_gather
        self._restored = self._saved = files_in(directory)
        self._written: dict[str, int] = {}
        self._number = 0

    @contextlib.contextmanager
    def snapshot(self, line: Line | None = None) -> Iterator[Snapshot | Later]:
        """Yield the state that belongs to the line or, without one, that of now."""
        links = link_files(self._path, files_in(self._path))
        try:
            is_found = line is None or self._is_saved(links) or belongs(links, line, self._path)
            yield Snapshot(links, line.at_ns if line else None) if is_found else Later()
        finally:
            remove_links(links)

    @contextlib.contextmanager
    def part(self, snapshot: Snapshot) -> Iterator[Checkpoint | None]:
        """Yield what this rank saves of its snapshot, if anything. All ranks have to call it together.

        If no rank has changed a file, or one of the snapshots is not intact, no rank saves.
        """
        self._number += 1
        state = files_in(snapshot.path)
        files = self._files(state, is_intact=snapshot.is_intact())
        ranks = [RankFiles(**fields) for fields in self._all_gather(vars(files))]
        if not any(one.is_changed for one in ranks) or not all(one.is_intact for one in ranks):
            yield None
            return
        self._saved, self._written = state, files.written
        paths = files_to_save(self._rank, _paths(state), ranks)
        yield Checkpoint.from_directory(str(_moved(snapshot.path, paths))) if paths else None

    def _is_saved(self, links: Path) -> bool:
        state = files_in(links)
        return not state or state == self._saved

    def _files(self, state: State, *, is_intact: bool) -> RankFiles:
        written = {
            str(file[0]): self._written[str(file[0])] if file in self._saved else self._number
            for file in state - self._restored
        }
        removed = _paths(self._restored) - _paths(state)
        return RankFiles(is_intact, state != self._saved, written, removed)


def files_to_save(rank: int, paths: set[str], ranks: Sequence[RankFiles]) -> set[str]:
    """Return which of its files the rank saves.

    Of a file that several ranks have written, the newest copy counts: that of the rank with the latest save, and of the
    lowest such rank. One that no rank has written was restored, and is saved by rank 0 unless a rank has removed it.
    """
    newest: dict[str, tuple[int, int]] = {}
    for number, one in enumerate(ranks):
        for path, save in one.written.items():
            newest[path] = max(newest.get(path, (0, 0)), (save, -number))
    removed = set[str]().union(*(one.removed for one in ranks))
    written = {path for path, (_, writer) in newest.items() if -writer == rank}
    return written | (paths - newest.keys() - removed if rank == 0 else set())


def _paths(state: State) -> set[str]:
    return {str(path) for path, *_ in state}


@naming_disk_errors(NOT_SAVED)
def _moved(links: Path, paths: set[str]) -> Path:
    """Return a folder, beside that of the links, to which those of these files are moved."""
    folder = links.parent / "part"
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (links / path).rename(folder / path)
    return folder
