"""The working directory of an attempt on one node. It has the user's files, as for a script that is run by hand.

Ray Train makes a directory for each run, shared by the ranks of a node, and leaves it there for as long as the cluster
lives. The last rank that uses it removes it.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainer.unused_folders import remove_unused
from trainer.worker.event_files import keep_event_files
from trainer.worker.node_disk import naming_failed_disk
from trainer.worker.user_code.package_listing import CACHE, read_listing

COPIED_BYTES = 1_000_000
"""Larger files of the package are links to it: they are usually data, which a script does not change."""

EXPERIMENTS = "*-x-????????????"
RUNS = f"{EXPERIMENTS}/trial-*-attempt-*"
"""The directories of Paceline's runs beside those of other users of the cluster."""


class WorkingDirectory:
    """One rank's use of the directory, which is its current directory.

    `package` is the folder with the user's code, `ranks` the number of ranks on this node. `event_files` is the URI
    where TensorBoard's event files are kept; None keeps none. The kernel ends the use when the process dies.
    Raises NodeDiskFailed.
    """

    def __init__(self, directory: Path, package: Path | None, ranks: int, event_files: str | None = None) -> None:
        self._directory = directory
        self._event_files = event_files
        self._ranks = ranks
        self._root = directory.parents[1]  # above the experiment's
        with naming_failed_disk("the package's files cannot be put into the working directory"):
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            with _arrival(directory) as is_first:
                if is_first:
                    remove_unused(self._root.glob(RUNS), remove)
                    remove_unused(self._root.glob(EXPERIMENTS), Path.rmdir)
                if is_first and package is not None:
                    _fill(directory, package)

    def leave(self) -> None:
        """Change to a directory that stays. The last rank that leaves removes this one, and keeps its event files.

        A process that serves several attempts needs a current directory between them. A rank that has not arrived yet
        may be on its way here, inside of Ray Train: without a backend the ranks do not wait for each other.
        """
        os.chdir(self._root)
        if _arrived(self._directory) == self._ranks:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._event_files is not None:
                    keep_event_files(self._directory, self._event_files)
                remove(self._directory)
        os.close(self._descriptor)


def remove(directory: Path) -> None:
    """The experiment's directory stays: Ray Train may be about to make that of another run in it."""
    shutil.rmtree(directory, ignore_errors=True)
    _arrivals(directory).unlink(missing_ok=True)


@contextlib.contextmanager
def _arrival(directory: Path) -> Iterator[bool]:
    """Whether this rank is the first of its node; the others wait until the first has left the context."""
    with _arrivals(directory).open("ab") as arrivals:
        fcntl.flock(arrivals, fcntl.LOCK_EX)
        yield os.fstat(arrivals.fileno()).st_size == 0  # its position is from before the lock
        arrivals.write(b".")


def _arrived(directory: Path) -> int:
    """The number of ranks of this node that have arrived; 0 if the last one has removed the directory."""
    with contextlib.suppress(FileNotFoundError):
        return _arrivals(directory).stat().st_size
    return 0


def _arrivals(directory: Path) -> Path:
    """A file with a byte for each rank that has arrived."""
    return directory.with_name(f".{directory.name}.ranks")


def _fill(directory: Path, package: Path) -> None:
    """Fill it with the package's own files: beside these may be what another trial has written."""
    own = read_listing(package)
    for folder, folders, names in os.walk(package):
        relative = Path(folder).relative_to(package)
        folders[:] = [
            name for name in folders if name != CACHE and (own is None or (relative / name).as_posix() in own.folders)
        ]
        (directory / relative).mkdir(exist_ok=True)
        for name in names:
            if own is None or (relative / name).as_posix() in own.files:
                _copy(Path(folder, name), directory / relative / name)


def _copy(source: Path, target: Path) -> None:
    if source.stat().st_size > COPIED_BYTES:
        target.symlink_to(source)
    else:
        shutil.copy2(source, target)
