"""The files of a checkpoint that one rank is about to save, with their sizes.

It runs in the worker process and travels there by value.
"""

import os
import stat

from pyarrow.fs import LocalFileSystem
from ray.train import Checkpoint

from trainer.ray_train.checkpoints.local_files import entries_below

FileSizes = dict[str, int]
"""The bytes of each file, by its path within the checkpoint."""


def checked_file_sizes(checkpoint: Checkpoint) -> FileSizes | None:
    """As `file_sizes`, of a checkpoint that Ray is about to save.

    Raises BadLink, and ValueError for a name that pyarrow, which saves the files, cannot read: its own error would not
    name the file. None for a directory that cannot be read: Ray's report says why.
    """
    if not isinstance(checkpoint.filesystem, LocalFileSystem):
        return None
    sizes = {}
    try:
        for name, status in entries_below(checkpoint.path):
            _check_name(name)
            if stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
    except OSError:
        return None
    return sizes


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        file = f"the checkpoint's file {os.fsencode(name)!r}"
        raise ValueError(f"{file} cannot be saved: its name is not UTF-8; rename it") from None


def file_sizes(checkpoint: Checkpoint) -> FileSizes | None:
    """None if they are not known: the checkpoint is not on this machine, or Ray could not save it from there."""
    try:
        return checked_file_sizes(checkpoint)
    except ValueError:
        return None
