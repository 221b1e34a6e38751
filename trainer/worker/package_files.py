"""Which files in the folder of an unpacked package are the package's own, and which were added by a trial.

The listing lies in the folder, because processes that have not unpacked the package use it, too.
"""

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

LISTING = ".paceline-files.json"

CACHE = "__pycache__"
"""Python's compiled modules. They are neither removed nor copied."""


@dataclass(frozen=True)
class PackageFiles:
    """The package's files and folders, by their paths in the folder. A file has its size and time of change."""

    folders: list[str]
    files: dict[str, list[int]]

    def unchanged(self, folder: Path) -> list[str]:
        """The files that are still as they were unpacked."""
        return [name for name, signature in self.files.items() if _signature(folder / name) == signature]


def write_listing(folder: Path) -> None:
    """List what is in the folder now as the package's own."""
    files = {name: signature for name in _files(folder) if (signature := _signature(folder / name)) is not None}
    own = PackageFiles(list(_folders(folder)), files)
    (folder / LISTING).write_text(json.dumps(asdict(own)))


def read_listing(folder: Path) -> PackageFiles:
    """Nothing is the package's own where a trial has removed the listing."""
    if not (folder / LISTING).exists():
        return PackageFiles([], {})
    return PackageFiles(**json.loads((folder / LISTING).read_text()))


def remove_additions(folder: Path) -> bool:
    """Remove what a trial has added, and files that it has changed. Returns whether something of the package is absent.

    The caller must be the only user of the folder.
    """
    own = read_listing(folder)
    unchanged = set(own.unchanged(folder))
    for name in set(_files(folder)) - unchanged:
        (folder / name).unlink()
    folders = set(_folders(folder))
    for name in folders.difference(own.folders):
        shutil.rmtree(folder / name, ignore_errors=True)  # the folder above it may be gone already
    return not own.files or len(unchanged) < len(own.files) or not folders.issuperset(own.folders)


def _folders(folder: Path) -> Iterator[str]:
    for path, _, _ in os.walk(folder):
        if path != str(folder) and CACHE not in (relative := Path(path).relative_to(folder)).parts:
            yield relative.as_posix()


def _files(folder: Path) -> Iterator[str]:
    """With the links, those to folders, too."""
    for path, folders, files in os.walk(folder):
        relative = Path(path).relative_to(folder)
        if CACHE not in relative.parts:
            links = [name for name in folders if Path(path, name).is_symlink()]
            yield from (name for one in (*files, *links) if (name := (relative / one).as_posix()) != LISTING)


def _signature(file: Path) -> list[int] | None:
    """None if it is no regular file."""
    with contextlib.suppress(OSError):
        found = file.lstat()
        if stat.S_ISREG(found.st_mode):
            return [found.st_size, found.st_mtime_ns]
    return None
