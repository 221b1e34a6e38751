"""Removes directories from a storage that is a directory. It follows no link that user code may have put there."""

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

RUN = re.compile(r"trial-\d+-attempt-\d+")
"""The name of a run's folder. It is in that of the experiment, and that one in the storage."""

EXPERIMENT = re.compile(r".+-x-[0-9a-f]{12}")
"""The name of an experiment's folder: its name and its id."""

EVENT_FILES = "tensorboard"
"""The folder in that of the experiment, with a folder for each run that has the same name."""

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
"""The flags for a folder on the way, which need not be readable."""

LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""The flags for a folder whose entries are needed."""


def remove_directory(path: Path) -> None:
    """Remove the directory, if it exists. Raises OSError, also if it is a link or reached through one."""
    with _opened(path.parent, written=_written_above(path)) as parent:
        if parent is not None:
            _remove(path.name, parent)


def remove_directories_except(names: Collection[str], folder: Path) -> None:
    """Remove the directories in the folder that have other names. Raises OSError as `remove_directory`."""
    with _opened(folder, written=_written_above(folder) + 1) as opened:
        if opened is None:
            return
        for name in _folders_in(opened):
            if name not in names:
                _remove(name, opened)


def _written_above(path: Path) -> int:
    """How many of the folders above it user code may write, from that of the experiment on; 0 outside of a run.

    The storage may itself be below a folder that has the name of a run: the id tells which one is an experiment's. Of
    several it is the first, as user code can only choose the names below its run.
    """
    names = path.parts
    runs = [place for place, name in enumerate(names) if RUN.fullmatch(name)]
    experiments = [place - (2 if names[place - 1] == EVENT_FILES else 1) for place in runs]
    with_id = [place for place in experiments if EXPERIMENT.fullmatch(names[place])]
    return len(names) - 1 - (with_id or experiments)[0] if experiments else 0


@contextlib.contextmanager
def _opened(path: Path, *, written: int) -> Iterator[int | None]:
    """The directory's descriptor, or None if there is no such directory.

    No link among its last `written` names is followed, nor one that comes later.
    """
    real = Path(os.path.realpath(path))  # `resolve` raises RuntimeError where links lead in a circle
    if written and real.parts[-written:] != path.parts[-written:]:
        raise OSError(f"{path} is reached through a link, to {real}")
    folder = _reached(real)
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)


def _reached(path: Path) -> int | None:
    folder = os.open("/", FOLDER)
    for name in path.parts[1:]:
        outer = folder
        try:
            folder = os.open(name, FOLDER, dir_fd=outer)
        except FileNotFoundError:
            return None
        finally:
            os.close(outer)
    return folder


def _remove(name: str, parent: int) -> None:
    """Remove the directory in `parent`, if it exists. What is gone by then is skipped: others may be removing it, too.

    Only the directory at hand is open, however deep it is. It may be moved meanwhile: so its `..` has to be the
    directory from which it was opened.
    """
    walk = _Walk(parent, name)
    try:
        while not walk.is_done:
            walk.go_on()
    finally:
        walk.close()


@dataclass(frozen=True)
class _Level:
    """A directory on the way down. `left` are the directories in it that are still to be removed."""

    name: str
    identity: tuple[int, int]
    left: list[str]


class _Walk:
    """Removes a directory from the inside out."""

    def __init__(self, parent: int, name: str) -> None:
        self._at = os.dup(parent)
        self._levels = [_Level("", _identity(parent), [name])]

    def close(self) -> None:
        os.close(self._at)

    @property
    def is_done(self) -> bool:
        return len(self._levels) == 1 and not self._levels[0].left

    def go_on(self) -> None:
        if self._levels[-1].left:
            self._enter(self._levels[-1].left.pop())
        else:
            self._leave_and_remove(self._levels.pop().name)

    def _enter(self, name: str) -> None:
        try:
            inner = os.open(name, LISTED, dir_fd=self._at)
        except FileNotFoundError:
            return
        self._move_to(inner)
        self._levels.append(_Level(name, _identity(inner), _without_files(inner)))

    def _leave_and_remove(self, name: str) -> None:
        self._move_to(os.open("..", FOLDER, dir_fd=self._at))
        if _identity(self._at) != self._levels[-1].identity:
            raise OSError(f"{name} was moved while it was being removed")
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=self._at)

    def _move_to(self, directory: int) -> None:
        before, self._at = self._at, directory
        os.close(before)


def _folders_in(folder: int) -> list[str]:
    directory = os.open(".", LISTED, dir_fd=folder)
    try:
        return [one.name for one in _listed(directory) if one.is_dir(follow_symlinks=False)]
    finally:
        os.close(directory)


def _without_files(directory: int) -> list[str]:
    """Remove what is not a directory in it. Returns the names of the directories."""
    folders = []
    for one in _listed(directory):
        if one.is_dir(follow_symlinks=False):
            folders.append(one.name)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(one.name, dir_fd=directory)
    return folders


def _listed(directory: int) -> list[os.DirEntry[str]]:
    """Nothing if the directory itself was removed meanwhile."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
