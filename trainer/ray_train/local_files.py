"""The files of a local directory, with those behind links.

pyarrow's listing leaves out a link to nothing, and follows a link to a folder around it 40 times.

It runs in the worker process and travels there by value.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

Entry = tuple[str, os.stat_result]
"""The path of a file or folder within the directory, and its status, which is that of a link's target."""

Identity = tuple[int, int]


class BadLink(ValueError):
    """A link in the directory leads to nothing that could be saved."""


def entries_below(directory: str) -> Iterator[Entry]:
    """Each folder comes before what is in it; what is neither a file nor a folder is left out.

    Raises BadLink, and OSError if the directory cannot be read.
    """
    root = Path(directory)
    return _entries_in(root, root, frozenset({_identity(root.stat())}))


def _entries_in(root: Path, folder: Path, above: frozenset[Identity]) -> Iterator[Entry]:
    """`above`: this folder and those in which it is."""
    for path in sorted(folder.iterdir()):
        name, status = path.relative_to(root).as_posix(), _status(root, path)
        if stat.S_ISREG(status.st_mode):
            yield name, status
        if stat.S_ISDIR(status.st_mode):
            if _identity(status) in above:
                raise _bad_link(root, path, "leads to a folder that it is in")
            yield name, status
            yield from _entries_in(root, path, above | {_identity(status)})


def _status(root: Path, path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError:
        if path.is_symlink():
            raise _bad_link(root, path, "leads to nothing that can be read") from None
        raise


def _bad_link(root: Path, path: Path, why: str) -> BadLink:
    link = f"the link {path.relative_to(root).as_posix()!r} to {str(path.readlink())!r}"
    return BadLink(f"the checkpoint cannot be saved: {link} {why}; remove it, or save what it stands for")


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
