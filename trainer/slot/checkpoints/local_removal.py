"""Removes directories from a storage that is a directory. It follows no link that user code may have put there."""

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

RUN = re.compile(r"trial-\d+-attempt-\d+")
"""The name of a run's folder. It is in that of the experiment, and that one in the storage."""

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
"""Of a folder on the way, which need not be readable."""


def remove_directory(path: Path) -> None:
    """Remove the directory, if it exists. Raises OSError, also if it is a link or reached through one."""
    with contextlib.suppress(FileNotFoundError), _opened(path.parent, written=_written_above(path)) as parent:
        shutil.rmtree(path.name, dir_fd=parent)


def remove_directories_except(names: Collection[str], folder: Path) -> None:
    """Remove the directories in the folder that have other names. Raises OSError as `remove_directory`."""
    with contextlib.suppress(FileNotFoundError), _opened(folder, written=_written_above(folder) + 1) as opened:
        with _readable(opened) as directory, os.scandir(directory) as found:
            unneeded = [one.name for one in found if one.name not in names and one.is_dir(follow_symlinks=False)]
        for name in unneeded:
            shutil.rmtree(name, dir_fd=opened)


def _written_above(path: Path) -> int:
    """How many of the folders above it user code may write, from that of the experiment on; 0 outside of a run."""
    runs = [place for place, name in enumerate(path.parts) if RUN.fullmatch(name)]
    return len(path.parts) - runs[0] if runs else 0


@contextlib.contextmanager
def _opened(path: Path, *, written: int) -> Iterator[int]:
    """The directory's descriptor. No link among its last `written` names is followed, nor one that comes later."""
    real = path.resolve()
    if written and real.parts[-written:] != path.parts[-written:]:
        raise OSError(f"{path} is reached through a link, to {real}")
    folder = os.open("/", FOLDER)
    try:
        for name in real.parts[1:]:
            outer, folder = folder, os.open(name, FOLDER, dir_fd=folder)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _readable(folder: int) -> Iterator[int]:
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        yield directory
    finally:
        os.close(directory)
