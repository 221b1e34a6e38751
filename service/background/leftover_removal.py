"""The loop that removes what killed processes leave behind: parts of packages, and folders of charts."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from service.background.charting import FOLDER_PREFIX
from service.operations.packages.package_store import PART_SUFFIX
from service.settings import PROBE_PREFIX, Settings

MAX_AGE_SECONDS = 3600.0
"""Nothing that is in use gets so old: a package is written, and charts are rendered, within minutes."""


class LeftoverRemoval:
    """`clock` returns seconds since the epoch, as the times of files."""

    name = "leftover removal"
    every = 600.0
    is_behind = False

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock

    def run_once(self) -> int:
        """Return the number of files and folders that were removed."""
        return sum(_remove(path) for path in self._leftovers() if self._is_old(path))

    def _leftovers(self) -> Iterator[Path]:
        yield from self._settings.packages_dir.glob(f"*{PART_SUFFIX}")
        for directory in (self._settings.data_dir, self._settings.packages_dir, self._settings.logs_dir):
            yield from directory.glob(f"{PROBE_PREFIX}*")
        yield from Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*")

    def _is_old(self, path: Path) -> bool:
        """And of this user: the folder for temporary files belongs to all."""
        try:
            found = path.lstat()
        except OSError:
            return False  # another service has removed it
        return found.st_uid == os.getuid() and self._clock() - found.st_mtime > MAX_AGE_SECONDS


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    return False
