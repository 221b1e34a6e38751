"""Which files in the folder of an unpacked package are the package's own, and which were added by a trial.

The listing lies in the folder, because processes that have not unpacked the package use it, too.
"""

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

CACHE = "__pycache__"
"""Python's compiled modules. They are neither removed nor copied."""

LISTING = f"{CACHE}/paceline-package-files"
"""Where user code that looks through the package's folder does not take it for a file of its own."""


@dataclass(frozen=True)
class PackageFiles:
    """The package's files and folders, by their paths in the folder. A file has its size and time of change."""

    folders: list[str]
    files: dict[str, list[int]]

    def changed(self, folder: Path) -> set[str]:
        """The files that are not as they were unpacked, or not there."""
        return {name for name, signature in self.files.items() if _signature(folder / name) != signature}


def write_listing(folder: Path) -> None:
    """List what is in the folder now as the package's own."""
    files = {name: signature for name in _files(folder) if (signature := _signature(folder / name)) is not None}
    _store(folder, PackageFiles(list(_folders(folder)), files))


def read_listing(folder: Path) -> PackageFiles | None:
    """None if it is not known which files are the package's: a trial has removed or overwritten the listing."""
    try:
        return PackageFiles(**json.loads((folder / LISTING).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def restore(folder: Path, read: Callable[[], Mapping[str, bytes]]) -> None:
    """Remove what trials have added, and write what they have changed or removed. `read` returns the package's files.

    What cannot be removed or written stays as it is. A file is replaced, not overwritten, because processes may still
    have the old one mapped. The caller must be the only user of the folder.
    """
    own = read_listing(folder)
    if own is None:
        return
    for name in set(_files(folder)) - own.files.keys():
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    for name in set(_folders(folder)).difference(own.folders):
        shutil.rmtree(folder / name, ignore_errors=True)  # the folder above it may be gone already
    for name in own.folders:
        with contextlib.suppress(OSError):
            (folder / name).mkdir(parents=True, exist_ok=True)
    changed = own.changed(folder)
    if not changed:
        return
    contents = read()
    for name in changed & contents.keys():
        with contextlib.suppress(OSError):
            _replace(folder / name, contents[name])
            own.files[name] = _signature(folder / name) or own.files[name]
    with contextlib.suppress(OSError):
        _store(folder, own)


def _store(folder: Path, own: PackageFiles) -> None:
    (folder / CACHE).mkdir(exist_ok=True)
    _replace(folder / LISTING, json.dumps(asdict(own)).encode())


def _replace(file: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
        written.write(content)
    Path(written.name).replace(file)


def _folders(folder: Path) -> Iterator[str]:
    for path, _, _ in os.walk(folder):
        if path != str(folder) and CACHE not in (relative := Path(path).relative_to(folder)).parts:
            yield relative.as_posix()


def _files(folder: Path) -> Iterator[str]:
    """The files and links, those to folders, too."""
    for path, folders, files in os.walk(folder):
        relative = Path(path).relative_to(folder)
        if CACHE not in relative.parts:
            links = [name for name in folders if Path(path, name).is_symlink()]
            yield from ((relative / one).as_posix() for one in (*files, *links))


def _signature(file: Path) -> list[int] | None:
    """None if it is no regular file."""
    with contextlib.suppress(OSError):
        found = file.lstat()
        if stat.S_ISREG(found.st_mode):
            return [found.st_size, found.st_mtime_ns]
    return None
