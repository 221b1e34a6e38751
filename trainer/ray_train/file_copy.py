"""Copies files between file systems so that one that does not arrive is an error.

pyarrow's `copy_files` leaves the closing of a copy to its destructor, which cannot raise (seen in pyarrow 25): what a
bucket answers to the last call of an upload is lost, and so is the file. A shared directory may run full only then,
too. Here each copy is closed.

A busy bucket refuses calls. pyarrow repeats most of them, a few times; `repeated` does so for longer.

It runs in the worker process and travels there by value.
"""

import os
import posixpath
import random
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 4.0
"""Between two tries, on average: the ranks of a trial do not call again at the same time."""

PATIENCE_SECONDS = 20.0
"""How long one file is tried again. A try may take some seconds, because pyarrow repeats most calls itself."""

FILES_AT_A_TIME = 8
CHUNK_BYTES = 64 * 1024 * 1024
"""What is read and written with one call, as in Ray Train."""

T = TypeVar("T")


def copy_file(source: FileSystem, path: str, target: FileSystem, target_path: str) -> None:
    """Replace the file at `target_path`, whose directory exists. Raises OSError if it is not complete there.

    The bytes are copied as they are, also of a file whose name says that it is compressed.
    """
    if isinstance(source, LocalFileSystem) and isinstance(target, LocalFileSystem):
        shutil.copyfile(path, target_path)
        return
    with (
        source.open_input_stream(path, compression=None) as reader,
        target.open_output_stream(target_path, compression=None) as writer,
    ):
        while (chunk := reader.read_buffer(CHUNK_BYTES)).size:
            writer.write(chunk)


def save_files(
    source: str,
    destination: str,
    source_filesystem: FileSystem | None = None,
    destination_filesystem: FileSystem | None = None,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Copy all files and directories below `source`, in place of Ray Train's `_pyarrow_fs_copy_files`.

    A file for a bucket is tried for `patience_seconds`. Raises FileNotFoundError and NotADirectoryError if `source` is
    no directory, and the OSError of a file's last try.
    """
    origin, storage = source_filesystem or LocalFileSystem(), destination_filesystem or LocalFileSystem()
    found = origin.get_file_info(FileSelector(source, recursive=True))
    targets = {one.path: posixpath.join(destination, os.path.relpath(one.path, source)) for one in found}
    for one in found:
        if one.type is FileType.Directory:
            storage.create_dir(targets[one.path])
    patience = 0.0 if isinstance(storage, LocalFileSystem) else patience_seconds
    files = [one.path for one in found if one.type is FileType.File]
    copies = [partial(copy_file, origin, path, storage, targets[path]) for path in files]
    run_all([partial(repeated, one, patience) for one in copies])


def run_all(calls: Iterable[Callable[[], Any]]) -> None:
    """Run them in threads. Raises what the first of them raises, and starts no further ones then."""
    with ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="paceline-copy") as pool:
        running = [pool.submit(call) for call in calls]
        try:
            for one in running:
                one.result()
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
