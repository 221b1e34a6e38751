"""Reads folders of the storage: local directories, and those of any URI that pyarrow has a file system for."""

import time
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from service.operations.checkpoints.folders import reached_as
from service.operations.checkpoints.local_folder import LocalFolder, absent
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
    """`uri` is that of a folder below `storage`, the URI or path of the storage. Raises OSError and ValueError.

    Only the path of `uri` is used. A worker has reported it, and must not name the server that gets the credentials.
    """
    path, root = _local_path(uri), _local_path(storage)
    return RemoteFolder(reached_as(storage, uri)) if path is None or root is None else LocalFolder(path, root)


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
            raise absent(self._path)
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
