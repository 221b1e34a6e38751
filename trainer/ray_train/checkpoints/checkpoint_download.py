"""Downloads a checkpoint from a bucket that may be busy, file by file.

pyarrow does not repeat the reading of a file that is smaller than the text of a busy bucket's refusal
(https://github.com/apache/arrow, `S3FileSystem`), such as the settings beside a model: so this repeats those.

It runs in the worker process and travels there by value.
"""

import errno
import os
from functools import partial
from pathlib import Path

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from trainer.ray_train.checkpoints.file_copy import ELSEWHERE_ADVICE, copy_file, repeated, run_all

PART = ".paceline-part"


def download(storage: FileSystem, path: str, directory: Path, patience_seconds: float) -> None:
    """Copy all files below `path` to the directory; each is tried for `patience_seconds`.

    A file that is already there with the same size and time of change is left, so that a repeated download continues
    where the last one ended. Raises FileNotFoundError if there is no such path, and the OSError of a file's last try.
    """
    found = storage.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    if not found and storage.get_file_info(path).type is FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    targets = {Path(directory, os.path.relpath(one.path, path)): one for one in found}
    for target, one in targets.items():
        (target if one.type is FileType.Directory else target.parent).mkdir(parents=True, exist_ok=True)
    missing = [item for item in targets.items() if item[1].type is FileType.File and not _is_copy(*item)]
    copies = [partial(_copy, storage, one, target, patience_seconds) for target, one in missing]
    run_all(copies)


def _is_copy(target: Path, source: FileInfo) -> bool:
    try:
        found = target.stat()
    except FileNotFoundError:
        return False
    return source.mtime_ns is not None and (found.st_size, found.st_mtime_ns) == (source.size, source.mtime_ns)


def _copy(storage: FileSystem, source: FileInfo, target: Path, patience_seconds: float) -> None:
    """The file appears when it is complete, because other processes may look at the directory."""
    part = target.with_name(target.name + PART)
    repeated(partial(_copy_whole, storage, source, part), patience_seconds)
    if source.mtime_ns is not None:
        os.utime(part, ns=(source.mtime_ns, source.mtime_ns))
    part.replace(target)


def _copy_whole(storage: FileSystem, source: FileInfo, target: Path) -> None:
    """Raises OSError if the file has another size than the listing says, as a page in its place has."""
    size = copy_file(storage, source.path, LocalFileSystem(), str(target))
    if size != source.size:
        raise OSError(f"reading {source.path} returned {size} bytes, but it has {source.size}; {ELSEWHERE_ADVICE}")
