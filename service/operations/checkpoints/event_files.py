"""TensorBoard's event files as one tar archive: those of a trial, or of all trials of an experiment.

Slots keep them when attempts end (`trainer.worker.event_files`), in a directory for each attempt.
"""

from collections.abc import Callable

from service.errors import NotFound
from service.operations.checkpoints.folder_archive import FolderArchive, folder_archive
from service.operations.checkpoints.folders import event_files_folder, is_of_trial
from service.operations.checkpoints.tar_layout import Entry
from service.runtime.context import Context
from service.store.lookup import experiment_named, trial_named
from service.store.tables import ExperimentRow

NOTHING_KEPT = (
    "there are no event files of TensorBoard: those that workers write below their working directory are kept when "
    "their attempt ends"
)
NOT_SHARED = (
    "Where workers run on other machines, the storage has to be a bucket, or a directory that the service shares with "
    "them"
)


def open_experiments_event_files(context: Context, name_or_id: str) -> FolderArchive:
    """Raises NotFound, StorageUnavailable."""
    with context.database.read() as session:
        experiment = experiment_named(session, name_or_id)
    return _archive(context, experiment, f"{experiment.name}-tensorboard", lambda _: True)


def open_trials_event_files(context: Context, trial_id: str) -> FolderArchive:
    """Raises NotFound, StorageUnavailable."""
    with context.database.read() as session:
        trial = trial_named(session, trial_id)
        experiment = session.get_one(ExperimentRow, trial.experiment_id)
    name = f"trial-{trial.number}-tensorboard"
    return _archive(context, experiment, name, lambda entry: is_of_trial(entry.name.partition("/")[0], trial.number))


def _archive(context: Context, experiment: ExperimentRow, name: str, belongs: Callable[[Entry], bool]) -> FolderArchive:
    storage = context.settings.storage
    try:
        archive = folder_archive(name, event_files_folder(experiment, storage), storage, belongs)
    except NotFound as error:
        raise NotFound(f"{NOTHING_KEPT}. {NOT_SHARED}") from error
    if not archive.has_entries:
        raise NotFound(NOTHING_KEPT)
    return archive
