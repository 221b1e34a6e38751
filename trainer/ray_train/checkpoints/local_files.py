"""The files of a local directory, with those behind links.

pyarrow's listing leaves out a link to nothing, and follows a link to a folder around it 40 times.

It runs in the worker process and travels there by value.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Entry = tuple[str, os.stat_result]
"""The path of a file or folder within the directory, and its status, which is that of a link's target."""

Identity = tuple[int, int]

GONE = (FileNotFoundError, NotADirectoryError)
"""What is removed, or replaced by a file, while it is looked at; also a link to nothing."""


OF_LINKS = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOENT, errno.ENOTDIR})
"""The errors of a link that leads to nothing; any other, such as ESTALE or EMFILE, is of the storage or the node."""


class BadLink(ValueError):
    """A link in the directory leads to nothing that could be saved."""


@dataclass(frozen=True)
class Folder:
    """A folder in the directory `root`, or that directory: then its `name`, the path within `root`, is empty.

    `link`: the name of the last link on the way to it. `above`: this folder and all those in which it, or the target of
    a link on the way to it, is.
    """

    root: str
    name: str
    link: str | None
    above: frozenset[Identity]

    @property
    def path(self) -> str:
        return str(Path(self.root, self.name))


def entries_below(directory: str) -> Iterator[Entry]:
    """Each folder comes before what is in it; what is neither a file nor a folder is left out.

    What is removed meanwhile is left out, too. Raises BadLink, and OSError if the directory cannot be read.
    """
    return _entries_in(Folder(directory, "", None, _with_parents(directory)))


def _entries_in(folder: Folder) -> Iterator[Entry]:
    for entry in _listed(folder):
        name = str(Path(folder.name, entry.name))
        link = name if entry.is_symlink() else folder.link
        status = _status(folder, entry, link)
        if status is None:
            continue
        if stat.S_ISREG(status.st_mode):
            yield name, status
        if stat.S_ISDIR(status.st_mode):
            if _identity(status) in folder.above:
                raise _bad_link(folder.root, link, "leads to a folder that it is in")
            yield name, status
            within = _with_parents(entry.path) if entry.is_symlink() else {_identity(status)}
            yield from _entries_in(Folder(folder.root, name, link, folder.above | within))


def _listed(folder: Folder) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder.path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if isinstance(error, GONE) and folder.name not in {"", folder.link}:
            return []
        if folder.link is None or error.errno not in OF_LINKS:
            raise
        raise _bad_link(folder.root, folder.link, f"leads to what cannot be read ({error})") from None


def _status(folder: Folder, entry: os.DirEntry[str], link: str | None) -> os.stat_result | None:
    """None if the entry is removed meanwhile."""
    try:
        return entry.stat()
    except OSError as error:
        if entry.is_symlink() and error.errno in OF_LINKS:
            raise _bad_link(folder.root, link, "leads to nothing that can be read") from None
        if isinstance(error, GONE):
            return None
        raise


def _bad_link(root: str, link: str | None, why: str) -> BadLink:
    """`link` is None for a folder that is mounted within itself."""
    what = "a folder" if link is None else f"the link {link!r} to {str(Path(root, link).readlink())!r}"
    return BadLink(f"the checkpoint cannot be saved: {what} {why}; remove it, or save what it stands for")


def _with_parents(folder: str) -> frozenset[Identity]:
    """The identities of the folder and of all folders that it is in."""
    real = Path(os.path.realpath(folder))
    return frozenset(_identity(one.stat()) for one in (real, *real.parents))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
