"""A trial's checkpoint as one tar archive."""

from urllib.parse import unquote

from service.errors import WrongState
from service.operations.checkpoints.folder_archive import FolderArchive, folder_archive
from service.operations.checkpoints.folders import is_below, split_query
from service.operations.checkpoints.pin import present_checkpoint
from service.runtime.context import Context
from service.store.lookup import trial_named


def open_archive(context: Context, trial_id: str, step: int) -> FolderArchive:
    """List the checkpoint's files. Raises NotFound, StorageUnavailable, and WrongState if it was removed.

    Only what is below the storage is read: a holder of `kind: external` may report any path.
    """
    with context.database.read() as session:
        trial = trial_named(session, trial_id)
        uri = present_checkpoint(session, trial, step).uri
    storage = context.settings.storage
    if not is_below(uri, storage) or not {"..", "."}.isdisjoint(unquote(split_query(uri)[0]).split("/")):
        raise WrongState(
            f"the checkpoint is at {uri}, which is not in this service's storage (PACELINE_STORAGE): read it from there"
        )
    return folder_archive(f"trial-{trial.number}-step-{step}", uri, storage)
