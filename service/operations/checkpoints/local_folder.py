"""Reads a folder of a storage that is a directory.

Code of users wrote the folder, and may at any moment exchange a directory in it for a link. So each directory is opened
below the one before, from the storage on, and none through a link: a path would be looked up anew by each call.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from service.errors import NotFound
from service.operations.checkpoints.tar_layout import Entry

DIRECTORY = os.O_PATH | os.O_DIRECTORY
"""Of a folder on the way, which need not be readable."""
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Opening a named pipe would otherwise wait for its writer."""

MAX_NAME = 4096
"""In characters. As long as a path may be: an entry takes as many calls as its name has parts."""


class LocalFolder:
    """Links are listed as links and never followed, except above the storage and when this is created."""

    def __init__(self, path: Path, storage: Path) -> None:
        # `resolve` raises RuntimeError where links lead in a circle.
        self._path, self._storage = Path(os.path.realpath(path)), Path(os.path.realpath(storage))
        if not self._path.is_relative_to(self._storage):
            raise NotFound(f"{path} is a link to something outside of the storage")

    def entries(self) -> list[Entry]:
        if not self._path.is_dir():
            raise absent(str(self._path))
        return sorted(self._listed(), key=lambda entry: entry.name)

    def open(self, entry: Entry) -> BinaryIO:
        """Raises OSError if it is no longer the file that was listed."""
        *folders, name = entry.name.split("/")
        with self._opened(folders) as directory:
            descriptor = os.open(name, FILE, dir_fd=directory)
        if _entry(entry.name, os.fstat(descriptor)) != entry:
            os.close(descriptor)
            raise OSError(f"{entry.name} has changed since it was listed")
        return os.fdopen(descriptor, "rb")

    def _listed(self) -> Iterator[Entry]:
        folders = [""]
        while folders:
            folder = folders.pop()
            with self._opened(folder.split("/") if folder else ()) as directory:
                for name in _names_in(directory):
                    path = f"{folder}/{name}" if folder else name
                    entry = _entry_in(directory, name, path)
                    if entry is not None:
                        yield entry
                        folders += [path] if entry.is_directory else []

    @contextmanager
    def _opened(self, folders: Iterable[str]) -> Iterator[int]:
        """The descriptor of the directory to which the names lead from this folder. Raises OSError at a link."""
        directory = os.open(self._storage, DIRECTORY)
        try:
            for name in (*self._path.relative_to(self._storage).parts, *folders):
                outer, directory = directory, os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                os.close(outer)
            yield directory
        finally:
            os.close(directory)


def _names_in(directory: int) -> list[str]:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        return os.listdir(readable)  # noqa: PTH208 - a Path takes no descriptor
    finally:
        os.close(readable)


def _entry_in(directory: int, name: str, path: str) -> Entry | None:
    if len(path) > MAX_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{path[:100]}…")
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return Entry(path, modified_at=_modified_at(found), target=os.readlink(name, dir_fd=directory))
    return _entry(path, found)


def _entry(path: str, found: os.stat_result) -> Entry | None:
    """None for what is in no archive, such as a named pipe."""
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, modified_at=_modified_at(found), is_directory=True)
    return Entry(path, found.st_size, _modified_at(found)) if stat.S_ISREG(found.st_mode) else None


def _modified_at(found: os.stat_result) -> float:
    return found.st_mtime_ns / 1e9


def absent(path: str) -> NotFound:
    return NotFound(
        f"the service finds nothing at {path}: where workers run on other machines, the storage has to be a bucket, or "
        "a directory that the service shares with them"
    )
