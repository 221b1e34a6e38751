"""Which saved state of a command belongs to which line of its output.

The command does not wait for its lines to be read, so it may have saved a later state meanwhile. A state belongs to a
line if none of its files was written after the line. The file system's clock tells: it dates the files and, through a
FIFO or the metrics file, the line.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.worker.commands.disk_errors import naming_disk_errors


@dataclass(frozen=True)
class Line:
    """When the command has written a line, in nanoseconds.

    `is_certain`: it has written nothing else until then, and the time is the file system's. Otherwise `is_quiet`, which
    waits a moment, has to say that the command has written nothing since.
    """

    at_ns: int
    is_certain: bool
    is_quiet: Callable[[], bool]


@dataclass(frozen=True)
class Snapshot:
    """Links to the files as they were when the line was written. `at_ns` is None if the command waits meanwhile."""

    path: Path
    at_ns: int | None

    def is_intact(self) -> bool:
        """Whether the command has not written into one of the files since, instead of replacing it."""
        return self.at_ns is None or all(modified <= self.at_ns for _, _, modified in files_in(self.path))


@dataclass(frozen=True)
class Unchanged:
    """There is nothing to save with the report."""


@dataclass(frozen=True)
class Later:
    """The command may have begun to save a later state, or too many snapshots wait: a later report gets the files."""


FileState = tuple[Path, int, int]
"""A file's path, relative to the directory, its size, and when it was written, in nanoseconds."""

State = set[FileState]

GONE = (FileNotFoundError, NotADirectoryError)
"""What is removed, or replaced by a file, while it is looked at; also a link to nothing."""


NOT_SAVED = "the command's checkpoint directory cannot be saved"


@naming_disk_errors(NOT_SAVED)
def files_in(directory: Path) -> State:
    """The files, also those in folders that are links. What is removed meanwhile is left out."""
    with contextlib.suppress(*GONE):
        return set(_files_below(directory, Path(), frozenset({_identity(directory.stat())})))
    return set()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _files_below(directory: Path, folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[FileState]:
    """`above`: this folder and those in which it is. Without them, two links to it would be followed 2**40 times."""
    for name in _names_in(directory / folder):
        path = folder / name
        with contextlib.suppress(*GONE):
            status = (directory / path).stat()
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size, status.st_mtime_ns
            if stat.S_ISDIR(status.st_mode):
                if _identity(status) in above:
                    raise OSError(errno.ELOOP, "A link to a folder that it is in", str(directory / path))
                yield from _files_below(directory, path, above | {_identity(status)})


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except GONE:
        return []


def belongs(links: Path, line: Line, directory: Path) -> bool:
    """Whether the linked files of the directory are the state that the command had saved when it wrote the line."""
    linked = files_in(links)
    newest = max((modified for _, _, modified in linked), default=0)
    if newest > line.at_ns:
        return False
    if newest < line.at_ns and line.is_certain:
        return True
    # The clock ticks every few milliseconds: a file of the line's tick may be of before the line or of after it.
    return line.is_quiet() and files_in(directory) == linked
