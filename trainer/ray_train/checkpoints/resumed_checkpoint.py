"""The checkpoint that an attempt resumes from, as `ray.train.get_checkpoint()` returns it.

It is used in the worker process and travels there by value.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray.air._internal.filelock import TempFileLock
from ray.train import Checkpoint

from trainer.ray_train.checkpoints.checkpoint_download import download
from trainer.ray_train.checkpoints.file_copy import PATIENCE_SECONDS, arrow_errors_as_os_errors, repeated
from trainer.unused_folders import ScratchFolder, lock_in_use, remove_unused

SHARED = "paceline-shared-checkpoint-"
"""The beginning of the names of the directories that the processes of a node share."""

OnReadError = Callable[[str, OSError], Exception]
"""Gets the path of a checkpoint that could not be read, and the error; returns what the user's call raises."""


class ResumedCheckpoint(Checkpoint):  # type: ignore[misc]
    """One that is read completely, also from a busy bucket, and that the processes of a node download once.

    Ray does that for one object that travels to all ranks; here each rank makes its own. And with Ray's, a process
    that has waited for another one's download takes what is there, also if that one has failed.

    Its methods raise what `on_read_error` returns if the checkpoint cannot be read, or is not there: the service knows
    of it, so that is no mistake of the user's code. A copy for which the caller names no directory is made in
    `scratch`.
    """

    def __init__(
        self,
        uri: str,
        on_read_error: OnReadError,
        scratch: ScratchFolder | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        super().__init__(uri)
        self._scratch = scratch or ScratchFolder()
        self._on_read_error = on_read_error
        self._patience_seconds = patience_seconds
        # Processes with other directories for Ray's locks must not share it.
        place = uuid.uuid5(uuid.NAMESPACE_URL, f"{os.environ.get('RAY_TMPDIR')} {uri}").hex
        self._shared = Path(tempfile.gettempdir(), f"{SHARED}{os.getuid()}-{place}")

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """As Ray's."""
        directory = Path(path or self._scratch.new_directory()).expanduser().absolute()
        directory.mkdir(parents=True, exist_ok=True)  # an error of the user's own directory is no error of the storage
        if self._is_local:
            with self._read_errors():
                return str(super().to_directory(directory))
        with TempFileLock(str(directory)):
            self._download(directory)
        return str(directory)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """As Ray's. The last of the processes that use the directory at the same time removes it."""
        if self._is_local:
            yield self.path
            return
        remove_unused(self._shared.parent.glob(f"{SHARED}{os.getuid()}-*"), shutil.rmtree)
        with self._read_errors():
            descriptor = _lock_own(self._shared)
        one_at_a_time = TempFileLock(str(self._shared))
        try:
            with one_at_a_time:
                self._download(self._shared)
            yield str(self._shared)
        finally:
            with one_at_a_time:
                _remove_if_unused(self._shared, descriptor)

    def get_metadata(self) -> dict[str, Any]:
        """As Ray's."""
        read = super().get_metadata
        with self._read_errors():
            return dict(read() if self._is_local else repeated(read, self._patience_seconds))

    @property
    def _is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    def _download(self, directory: Path) -> None:
        with self._read_errors():
            download(self.filesystem, self.path, directory, self._patience_seconds)

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            with arrow_errors_as_os_errors():
                yield
        except OSError as error:
            raise self._on_read_error(self.path, error) from error


def _lock_own(directory: Path) -> int:
    """Lock the directory, made if necessary, as used by this process; returns the file descriptor.

    Raises OSError for one in which another user of the node could exchange the files. Its name is no secret.
    """
    descriptor = lock_in_use(directory, partial(directory.mkdir, mode=0o700, exist_ok=True))
    found = os.fstat(descriptor)
    is_own = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_own and os.path.samestat(found, directory.lstat()):  # and not a link
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "another user may write to the directory for it", str(directory))


def _remove_if_unused(directory: Path, descriptor: int) -> None:
    """Give the lock back; the last process to do so removes the directory."""
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)
