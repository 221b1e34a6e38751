"""TensorBoard's event files: kept in the storage when the working directory of an attempt is removed."""

import logging
import shutil
from pathlib import Path, PurePosixPath

from pyarrow.fs import FileSystem

logger = logging.getLogger("paceline")

PATTERN = "*tfevents*"
"""The pattern by which TensorBoard itself finds them."""


def keep_event_files(directory: Path, uri: str) -> None:
    """Copy the event files below the directory to the directory with this URI, under the same relative paths.

    What cannot be kept is logged: the attempt has ended, and its outcome does not depend on it.
    """
    try:
        if files := [path for path in directory.rglob(PATTERN) if path.is_file() and not path.is_symlink()]:
            storage, target = FileSystem.from_uri(uri)
            for file in files:
                _copy(file, storage, PurePosixPath(target, file.relative_to(directory).as_posix()))
    except (OSError, ValueError) as error:  # user code may still run in a thread, and remove what is being looked at
        logger.warning("TensorBoard's event files could not be kept at %s: %s", uri, error)


def _copy(file: Path, storage: FileSystem, target: PurePosixPath) -> None:
    storage.create_dir(str(target.parent))
    with file.open("rb") as source, storage.open_output_stream(str(target)) as stream:
        shutil.copyfileobj(source, stream)
