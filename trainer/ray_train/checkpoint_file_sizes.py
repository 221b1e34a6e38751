"""The files of a checkpoint that one rank is about to save, with their sizes.

It runs in the worker process and travels there by value.
"""

import os
from pathlib import Path

from pyarrow.fs import LocalFileSystem
from ray.train import Checkpoint

FileSizes = dict[str, int]
"""The bytes of each file, by its path within the checkpoint."""


def check_names(files: FileSizes | None) -> None:
    """Raise ValueError for a name that pyarrow, which saves the files, cannot read. Its own error would not name it."""
    for name in files or ():
        try:
            name.encode()
        except UnicodeEncodeError:
            message = f"the checkpoint's file {os.fsencode(name)!r} cannot be saved: its name is not UTF-8; rename it"
            raise ValueError(message) from None


def file_sizes(checkpoint: Checkpoint | None) -> FileSizes | None:
    """None if they are not known: the checkpoint is not on this machine, or is not readable. Empty without one."""
    if checkpoint is None:
        return {}
    if not isinstance(checkpoint.filesystem, LocalFileSystem):
        return None
    try:
        files = [file for file in Path(checkpoint.path).rglob("*") if file.is_file()]
        return {str(file.relative_to(checkpoint.path)): file.stat().st_size for file in files}
    except OSError:
        return None
