"""The files of a checkpoint that one rank is about to save, with their sizes.

It runs in the worker process and travels there by value.
"""

import contextlib
import os
import stat

from pyarrow.fs import LocalFileSystem
from ray.train import Checkpoint

from trainer.ray_train.local_files import BadLink, entries_below

FileSizes = dict[str, int]
"""The bytes of each file, by its path within the checkpoint."""


def check_files(checkpoint: Checkpoint) -> None:
    """Raise BadLink, and ValueError for a name that pyarrow, which saves the files, cannot read.

    Its own error would not name the file.
    """
    if not isinstance(checkpoint.filesystem, LocalFileSystem):
        return
    with contextlib.suppress(OSError):  # of a directory that cannot be read, which Ray's report says
        for name, _ in entries_below(checkpoint.path):
            try:
                name.encode()
            except UnicodeEncodeError:
                file = f"the checkpoint's file {os.fsencode(name)!r}"
                raise ValueError(f"{file} cannot be saved: its name is not UTF-8; rename it") from None


def file_sizes(checkpoint: Checkpoint | None) -> FileSizes | None:
    """None if they are not known: the checkpoint is not on this machine, or is not readable. Empty without one."""
    if checkpoint is None:
        return {}
    if not isinstance(checkpoint.filesystem, LocalFileSystem):
        return None
    try:
        found = entries_below(checkpoint.path)
        return {name: status.st_size for name, status in found if stat.S_ISREG(status.st_mode)}
    except (OSError, BadLink):
        return None
