"""A trial's checkpoint as one tar archive, read from the storage while it is sent."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import StorageUnavailable, WrongState
from service.operations.checkpoints.folders import is_below
from service.operations.checkpoints.pin import present_checkpoint
from service.operations.checkpoints.stored_folder import StoredFolder, stored_folder
from service.operations.checkpoints.tar_layout import FilePart, TarLayout
from service.runtime.context import Context
from service.store.lookup import trial_named

CHUNK_BYTES = 4 << 20
"""Each piece of a file in a bucket is a request of its own."""


@dataclass(frozen=True)
class CheckpointArchive:
    """`name` is that of the directory in it. `etag` is the same as long as the checkpoint's files are."""

    name: str
    folder: StoredFolder
    layout: TarLayout

    @property
    def size(self) -> int:
        return self.layout.size

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
            with self.folder.open(part.entry) as file:
                file.seek(part.offset)
                missing = part.length
                while missing and (piece := file.read(min(missing, CHUNK_BYTES))):
                    missing -= len(piece)
                    yield piece
        except (OSError, ValueError) as error:
            raise _unavailable(part.entry.name, error) from error
        if missing:
            raise StorageUnavailable(f"{part.entry.name} has become shorter while it was read; repeat the call")


def open_archive(context: Context, trial_id: str, step: int) -> CheckpointArchive:
    """List the checkpoint's files. Raises NotFound, StorageUnavailable, and WrongState if it was removed.

    Only what is below the storage is read: a holder of `kind: external` may report any path.
    """
    with context.database.read() as session:
        trial = trial_named(session, trial_id)
        uri = present_checkpoint(session, trial, step).uri
    storage = context.settings.storage
    if not is_below(uri, storage) or not {"..", "."}.isdisjoint(uri.partition("?")[0].split("/")):
        raise WrongState(
            f"the checkpoint is at {uri}, which is not in this service's storage (PACELINE_STORAGE): read it from there"
        )
    name = f"trial-{trial.number}-step-{step}"
    try:
        folder = stored_folder(uri, storage)
        return CheckpointArchive(name, folder, TarLayout(name, folder.entries()))
    except (OSError, ValueError) as error:
        raise _unavailable(uri, error) from error


def _unavailable(what: str, error: Exception) -> StorageUnavailable:
    return StorageUnavailable(f"{what} cannot be read: {type(error).__name__}: {error}")
