"""Downloads a checkpoint from a bucket that may be busy, file by file.

A busy bucket refuses calls. pyarrow repeats them, except the reading of a file that is smaller than the text of the
refusal (https://github.com/apache/arrow, `S3FileSystem`), such as the settings beside a model: so this repeats those.

It runs in the worker process and travels there by value.
"""

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, copy_files

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 4.0
"""Between two tries, on average: the ranks of a trial do not call again at the same time."""

FILES_AT_A_TIME = 8
CHUNK_BYTES = 64 * 1024 * 1024
"""What is read with one call, as in Ray Train."""

PART = ".paceline-part"

T = TypeVar("T")


def download(storage: FileSystem, path: str, directory: Path, patience_seconds: float) -> None:
    """Copy all files below `path` to the directory; each is tried for `patience_seconds`.

    A file that is already there with the same size and time of change is left, so that a repeated download continues
    where the last one ended. Raises FileNotFoundError if there is no such path, and the OSError of a file's last try.
    """
    found = storage.get_file_info(FileSelector(path, recursive=True))
    targets = {Path(directory, os.path.relpath(one.path, path)): one for one in found}
    for target, one in targets.items():
        (target if one.type is FileType.Directory else target.parent).mkdir(parents=True, exist_ok=True)
    missing = [item for item in targets.items() if item[1].type is FileType.File and not _is_copy(*item)]
    with ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="paceline-download") as pool:
        copies = [pool.submit(_copy, storage, one, target, patience_seconds) for target, one in missing]
        try:
            for copy in copies:
                copy.result()
        finally:
            pool.shutdown(cancel_futures=True)


def repeated(call: Callable[[], T], patience_seconds: float) -> T:
    """What the call returns; it is repeated when it raises an OSError, except for a file that does not exist."""
    deadline, pause = time.monotonic() + patience_seconds, FIRST_PAUSE_SECONDS
    jitter = random.Random()  # noqa: S311 - no secret; user code seeds and uses the module's own generator
    while True:
        try:
            return call()
        except FileNotFoundError:
            raise
        except OSError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause * jitter.uniform(0.5, 1.5))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _is_copy(target: Path, source: FileInfo) -> bool:
    try:
        found = target.stat()
    except FileNotFoundError:
        return False
    return source.mtime_ns is not None and (found.st_size, found.st_mtime_ns) == (source.size, source.mtime_ns)


def _copy(storage: FileSystem, source: FileInfo, target: Path, patience_seconds: float) -> None:
    """The file appears when it is complete, because other processes may look at the directory."""
    part = target.with_name(target.name + PART)
    copy = partial(copy_files, source.path, str(part), storage, LocalFileSystem(), chunk_size=CHUNK_BYTES)
    repeated(copy, patience_seconds)
    if source.mtime_ns is not None:
        os.utime(part, ns=(source.mtime_ns, source.mtime_ns))
    part.replace(target)
