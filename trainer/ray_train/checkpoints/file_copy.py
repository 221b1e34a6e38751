"""Copies files between file systems so that one that does not arrive is an error.

pyarrow's `copy_files` leaves the closing of a copy to its destructor, which cannot raise (seen in pyarrow 25): what a
bucket answers to the last call of an upload is lost, and so is the file. A shared directory may run full only then,
too. Here each copy is closed.

What a bucket answers need not come from it: a gateway that answers each call with 200 and a page of its own makes
pyarrow take a file for written. So what was written is looked for in a listing, whose format no page has; a page is a
size for the file alone (`get_file_info(path)`).

A busy bucket refuses calls. pyarrow repeats most of them, a few times; `repeated` does so for longer.

It runs in the worker process and travels there by value.
"""

import contextlib
import os
import posixpath
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pyarrow import ArrowException, ArrowInvalid
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from trainer.ray_train.checkpoints.local_files import entries_below

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 4.0
"""Between two tries, on average: the ranks of a trial do not call again at the same time."""

PATIENCE_SECONDS = 20.0
"""How long one file is tried again. A try may take some seconds, because pyarrow repeats most calls itself."""

FILES_AT_A_TIME = 8
CHUNK_BYTES = 64 * 1024 * 1024
"""What is read and written with one call, as in Ray Train."""

ELSEWHERE_ADVICE = "does a proxy or a sign-in page answer instead of the storage?"

T = TypeVar("T")


def copy_file(source: FileSystem, path: str, target: FileSystem, target_path: str) -> int:
    """Replace the file at `target_path`, whose directory exists; returns the number of bytes.

    Raises OSError if the storage says that it is not complete there. The bytes are copied as they are, also of a file
    whose name says that it is compressed.
    """
    if isinstance(source, LocalFileSystem) and isinstance(target, LocalFileSystem):
        shutil.copyfile(path, target_path)
        return os.path.getsize(target_path)  # noqa: PTH202
    count = 0
    with (
        source.open_input_stream(path, compression=None) as reader,
        target.open_output_stream(target_path, compression=None) as writer,
    ):
        while (chunk := reader.read_buffer(CHUNK_BYTES)).size:
            writer.write(chunk)
            count += chunk.size
    return count


def save_files(
    source: str,
    destination: str,
    source_filesystem: FileSystem | None = None,
    destination_filesystem: FileSystem | None = None,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Copy all files and directories below `source`, in place of Ray Train's `_pyarrow_fs_copy_files`.

    A file for a bucket is tried for `patience_seconds`, until a listing has it. What a link leads to is copied, if
    `source` is on this machine. Raises BadLink, FileNotFoundError and NotADirectoryError if `source` is no directory,
    and the OSError of a file's last try.
    """
    origin, storage = source_filesystem or LocalFileSystem(), destination_filesystem or LocalFileSystem()
    folders: list[Callable[[], None]] = []
    copies: dict[str, Callable[[], int]] = {}
    for name, is_folder in _entries(origin, source):
        target = posixpath.join(destination, name)
        if is_folder:
            folders.append(partial(storage.create_dir, target))
        else:
            copies[name] = partial(copy_file, origin, posixpath.join(source, name), storage, target)
    patience = 0.0 if isinstance(storage, LocalFileSystem) else patience_seconds
    for create in folders:
        repeated(create, patience)
    run_all(partial(repeated, copy, patience) for copy in copies.values())
    if copies and not isinstance(storage, LocalFileSystem):
        _copy_until_listed(copies, storage, destination, patience)


def _entries(origin: FileSystem, source: str) -> Iterator[tuple[str, bool]]:
    """The path of each file and directory below `source`, and whether it is a directory."""
    if isinstance(origin, LocalFileSystem):
        for name, status in entries_below(source):
            yield name, stat.S_ISDIR(status.st_mode)
        return
    for one in origin.get_file_info(FileSelector(source, recursive=True)):
        if one.type in {FileType.Directory, FileType.File}:
            yield os.path.relpath(one.path, source), one.type is FileType.Directory


def _copy_until_listed(
    copies: Mapping[str, Callable[[], int]], storage: FileSystem, folder: str, patience_seconds: float
) -> None:
    """Call the copies, by paths below the folder, again whose files a listing lacks. Raises OSError for the others.

    The size may be that of another rank's file of the same name: of those, the last one stays.
    """
    deadline, pause = time.monotonic() + patience_seconds, FIRST_PAUSE_SECONDS
    while missing := copies.keys() - repeated(partial(_listed, storage, folder), patience_seconds):
        if time.monotonic() + pause > deadline:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise OSError(f"the storage accepted {min(missing)}{more}, but does not list it; {ELSEWHERE_ADVICE}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        with contextlib.suppress(OSError):  # then the next listing lacks it
            run_all(copies[name] for name in missing)


def _listed(storage: FileSystem, folder: str) -> set[str]:
    """The files below the folder, by their paths in it. One listing has those of all ranks, 1,000 with each call."""
    found = storage.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
    return {one.path.lstrip("/").removeprefix(folder.strip("/")).lstrip("/") for one in found}


def run_all(calls: Iterable[Callable[[], object]]) -> None:
    """Run them in threads. Raises what the first of them raises, and starts no further ones then."""
    with ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="paceline-copy") as pool:
        running = [pool.submit(call) for call in calls]
        try:
            for one in running:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def arrow_errors_as_os_errors() -> Iterator[None]:
    """Raise OSError for a page that is not the JSON of Google's buckets, and where Azure has no token for it."""
    try:
        yield
    except OSError:
        raise
    except ArrowException as error:
        advice = f"; {ELSEWHERE_ADVICE}" if isinstance(error, ArrowInvalid) else ""
        raise OSError(f"{error}{advice}") from error


def repeated(call: Callable[[], T], patience_seconds: float) -> T:
    """What the call returns; it is repeated when it raises an OSError, except for a file that does not exist."""
    deadline, pause = time.monotonic() + patience_seconds, FIRST_PAUSE_SECONDS
    jitter = random.Random()  # noqa: S311 - no secret; user code seeds and uses the module's own generator
    while True:
        try:
            with arrow_errors_as_os_errors():
                return call()
        except FileNotFoundError:
            raise
        except OSError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause * jitter.uniform(0.5, 1.5))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
