"""A folder of the storage as one tar archive, read while it is sent."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from service.errors import StorageUnavailable
from service.operations.checkpoints.stored_folder import StoredFolder, stored_folder
from service.operations.checkpoints.tar_layout import Entry, FilePart, TarLayout

CHUNK_BYTES = 4 << 20
"""Each piece of a file in a bucket is a request of its own."""


@dataclass(frozen=True)
class FolderArchive:
    """`name` is that of the directory in it. `etag` is the same as long as the files are."""

    name: str
    folder: StoredFolder
    layout: TarLayout

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def has_entries(self) -> bool:
        return self.layout.has_entries

    @property
    def etag(self) -> str:
        return f'"{self.layout.digest}"'

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in pieces. Raises StorageUnavailable."""
        for part in self.layout.parts(start, stop):
            if isinstance(part, FilePart):
                yield from self._read_file(part)
            else:
                yield part

    def _read_file(self, part: FilePart) -> Iterator[bytes]:
        try:
            with closing(self.folder.open(part.entry)) as file:
                file.seek(part.offset)
                missing = part.length
                while missing and (piece := file.read(min(missing, CHUNK_BYTES))):
                    missing -= len(piece)
                    yield piece
        except (OSError, ValueError) as error:
            raise _unreadable(part.entry.name, error) from error
        if missing:
            raise StorageUnavailable(f"{part.entry.name} has become shorter while it was read; repeat the call")


def folder_archive(
    name: str, uri: str, storage: str, belongs: Callable[[Entry], bool] = lambda _: True
) -> FolderArchive:
    """List what belongs in the archive. Raises StorageUnavailable, and NotFound if there is no such folder."""
    try:
        folder = stored_folder(uri, storage)
        return FolderArchive(name, folder, TarLayout(name, [one for one in folder.entries() if belongs(one)]))
    except (OSError, ValueError) as error:
        raise _unreadable(uri, error) from error


def _unreadable(what: str, error: Exception) -> StorageUnavailable:
    return StorageUnavailable(f"{what} cannot be read: {type(error).__name__}: {error}")
