"""Reads folders of the storage: local directories, and those of any URI that pyarrow has a file system for."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from service.operations.checkpoints.folders import reached_as
from service.operations.checkpoints.local_folder import LocalFolder, absent
from service.operations.checkpoints.tar_layout import Entry

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Between the readings of a file in a bucket, when one fails. A thread for downloads waits, and no transaction."""


SKIPPED_BYTES = 4 << 20
"""At a time, of what is before a wanted part of a file."""


class StoredFolder(Protocol):
    """A folder that is read. Its methods raise OSError, and ValueError for a URI that cannot be understood."""

    def entries(self) -> list[Entry]:
        """Everything below it, by name. Raises NotFound if it does not exist."""

    def open(self, entry: Entry) -> "StoredFile":
        """Open the entry's file to be read."""


class StoredStream(Protocol):
    """What of a binary stream is used."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class StoredFile(StoredStream, Protocol):
    """What of a binary file is used."""

    def seek(self, offset: int, /) -> int: ...


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
        self._is_google = self._storage.type_name == "gcs"

    def entries(self) -> list[Entry]:
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        found = self._storage.get_file_info(FileSelector(self._path, recursive=True, allow_not_found=True))
        if not found and self._storage.get_file_info(self._path).type is FileType.NotFound:
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
        path = f"{self._path}/{entry.name}"
        if self._is_google:
            return RemoteFile(ForwardFile(partial(self._storage.open_input_stream, path, compression=None)))
        return RemoteFile(self._storage.open_input_file(path))


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


class ForwardFile:
    """A file that is read from its beginning on; `open_stream` opens it, again after an error or for a `seek` back.

    For Google's buckets: to look whether a file of `open_input_file` is closed, which each of its methods does, pyarrow
    asks the bucket for it and keeps the GIL (seen in pyarrow 25). All of the service would wait, also for one that is
    away. Here a `seek` forward reads what is between.
    """

    def __init__(self, open_stream: Callable[[], StoredStream]) -> None:
        self._open_stream = open_stream
        self._stream: StoredStream | None = open_stream()
        self._offset = 0

    def seek(self, offset: int, /) -> int:
        if self._stream is None or offset < self._offset:
            self.close()
            self._stream, self._offset = self._open_stream(), 0
        while self._offset < offset and self.read(min(SKIPPED_BYTES, offset - self._offset)):
            pass
        return self._offset

    def read(self, size: int, /) -> bytes:
        if self._stream is None:
            self.seek(self._offset)
            return self.read(size)
        try:
            piece = self._stream.read(size)
        except OSError:
            self.close()
            raise
        self._offset += len(piece)
        return piece

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _local_path(uri: str) -> Path | None:
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri) if uri.startswith("/") else None
