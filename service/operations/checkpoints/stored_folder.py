"""Reads folders of the storage: local directories, and those of any URI that pyarrow has a file system for."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from service.errors import NotFound
from service.operations.checkpoints.tar_layout import Entry

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Between the readings of a file in a bucket, when one fails. A thread for downloads waits, and no transaction."""


class StoredFolder(Protocol):
    """A folder that is read. Its methods raise OSError, and ValueError for a URI that cannot be understood."""

    def entries(self) -> list[Entry]:
        """Everything below it, by name. Raises NotFound if it does not exist."""

    def open(self, entry: Entry) -> "StoredFile":
        """Open the entry's file to be read."""


class StoredFile(Protocol):
    """What of a binary file is used."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def stored_folder(uri: str, storage: str) -> StoredFolder:
    """`uri` is that of a folder below `storage`, the URI or path of the storage. Raises OSError and ValueError."""
    path, root = _local_path(uri), _local_path(storage)
    return RemoteFolder(uri) if path is None or root is None else LocalFolder(path, root)


class LocalFolder:
    """Links are listed as links and never followed: code of users wrote the folder, and may not choose what is read."""

    def __init__(self, path: Path, storage: Path) -> None:
        real = path.resolve()
        if not real.is_relative_to(storage.resolve()):
            raise NotFound(f"{path} is a link to something outside of the storage")
        self._path = real

    def entries(self) -> list[Entry]:
        if not self._path.is_dir():
            raise _absent(str(self._path))
        return sorted(_local_entries(self._path), key=lambda entry: entry.name)

    def open(self, entry: Entry) -> BinaryIO:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(os.open(self._path / entry.name, flags), "rb")


class RemoteFolder:
    def __init__(self, uri: str) -> None:
        # Heavy, and only services with a remote storage need it.
        from pyarrow.fs import FileSystem  # noqa: PLC0415

        self._storage, self._path = FileSystem.from_uri(uri)
        self._path = self._path.rstrip("/")

    def entries(self) -> list[Entry]:
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        found = self._storage.get_file_info(FileSelector(self._path, recursive=True, allow_not_found=True))
        if not found:
            raise _absent(self._path)
        kinds = {FileType.File, FileType.Directory}
        entries = [
            Entry(
                one.path.removeprefix(f"{self._path}/"),
                one.size or 0,
                (one.mtime_ns or 0) / 1e9,
                is_directory=one.type is FileType.Directory,
            )
            for one in found
            if one.type in kinds
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def open(self, entry: Entry) -> "RemoteFile":
        return RemoteFile(self._storage.open_input_file(f"{self._path}/{entry.name}"))


class RemoteFile:
    """A busy bucket refuses calls, and pyarrow repeats all of them but the reading of a small file: so this does."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._offset = 0

    def seek(self, offset: int, /) -> int:
        self._offset = offset
        return offset

    def read(self, size: int, /) -> bytes:
        piece = self._read_repeatedly(size)
        self._offset += len(piece)
        return piece

    def close(self) -> None:
        self._file.close()

    def _read_repeatedly(self, size: int) -> bytes:
        for pause in PAUSES_SECONDS:
            try:
                return self._read_once(size)
            except OSError:
                time.sleep(pause)
        return self._read_once(size)

    def _read_once(self, size: int) -> bytes:
        self._file.seek(self._offset)
        return self._file.read(size)


def _local_path(uri: str) -> Path | None:
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri) if uri.startswith("/") else None


def _local_entries(top: Path) -> Iterator[Entry]:
    def fail(error: OSError) -> None:
        raise error

    for folder, directories, files in os.walk(top, onerror=fail):
        for path in (Path(folder, name) for name in [*directories, *files]):
            found = path.lstat()
            name, at = path.relative_to(top).as_posix(), found.st_mtime_ns / 1e9
            if stat.S_ISLNK(found.st_mode):
                yield Entry(name, modified_at=at, target=str(path.readlink()))
            elif stat.S_ISDIR(found.st_mode):
                yield Entry(name, modified_at=at, is_directory=True)
            elif stat.S_ISREG(found.st_mode):
                yield Entry(name, found.st_size, at)


def _absent(path: str) -> NotFound:
    return NotFound(
        f"the service finds nothing at {path}: where workers run on other machines, the storage has to be a bucket, or "
        "a directory that the service shares with them"
    )
