"""Where the checkpoints of an experiment are below the storage."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from service.store.tables import ExperimentRow, TrialRow

EVENT_FILES = "tensorboard"

BUCKETS = {"file", "gcs", "gs", "s3"}
"""Schemes whose authority names a bucket, or nothing."""

_PLACE = re.compile(r"([^/?#:]+)://[^/?#]*")


def experiment_folder(experiment: ExperimentRow) -> str:
    """The folder of all checkpoints of the experiment."""
    return f"{experiment.name}-{experiment.id}"


def run_of(experiment: ExperimentRow, trial_number: int, attempt: int) -> str:
    """The folder of the attempt's checkpoints. It is unique to the attempt."""
    return f"{experiment_folder(experiment)}/{_attempts_prefix(trial_number)}{attempt}"


def split_query(uri: str) -> tuple[str, str, str]:
    """Return what is before the query, its mark `?`, and the query. A path has none: a `?` in it is part of a name."""
    return (uri, "", "") if is_path(uri) else uri.partition("?")


def is_path(storage: str) -> bool:
    """Whether it is a path, and no URI."""
    return storage.startswith("/") or "://" not in storage


def uri_below(storage: str, path: str) -> str:
    """The URI of this path in a storage, whose own URI may have a query."""
    folder, mark, query = split_query(storage)
    return f"{folder.rstrip('/')}/{path}{mark}{query}"


def event_files_folder(experiment: ExperimentRow, storage: str) -> str:
    """The URI of the folder of TensorBoard's event files, with a directory for each attempt.

    It is in the experiment's folder, and so it is deleted with the experiment.
    """
    return uri_below(storage, f"{experiment_folder(experiment)}/{EVENT_FILES}")


def event_files_of(experiment: ExperimentRow, trial: TrialRow, attempt: int, storage: str) -> str:
    """The URI of the attempt's directory in that folder."""
    directory = f"{_attempts_prefix(trial.number)}{attempt}"
    return uri_below(storage, f"{experiment_folder(experiment)}/{EVENT_FILES}/{directory}")


def is_of_trial(directory: str, trial_number: int) -> bool:
    """Whether the name is that of a directory of one of the trial's attempts."""
    return directory.startswith(_attempts_prefix(trial_number))


def _attempts_prefix(trial_number: int) -> str:
    """How the names of the directories of a trial's attempts begin; the attempt's number follows."""
    return f"trial-{trial_number}-attempt-"


def run_folder_of(uri: str, run: str) -> str | None:
    """The URI of the run's folder in which the checkpoint is; None if it is elsewhere, so that no slot has saved it."""
    path, mark, query = split_query(uri)
    above, is_in_run, name = path.rstrip("/").rpartition(f"/{run}/")
    if not above or not is_in_run or "\n" in path:
        return None
    if not {"..", "."}.isdisjoint(path.split("/")) or "" in name.split("/"):
        return None
    return f"{above}/{run}{mark}{query}"


def is_below(uri: str, folder: str) -> bool:
    """Whether the URI is that of something in the folder, also a URI."""
    return uri.startswith(f"{split_query(folder)[0].rstrip('/')}/")


class UrisByFolder:
    """URIs in their order, in which those of a folder are found without a look at the others."""

    def __init__(self, uris: Iterable[str]) -> None:
        self._uris = sorted(set(uris))

    def below(self, folder: str) -> Iterator[str]:
        """The URIs of which `is_below` says that they are in the folder."""
        start = f"{split_query(folder)[0].rstrip('/')}/"
        for index in range(bisect_left(self._uris, start), len(self._uris)):
            if not self._uris[index].startswith(start):
                return
            yield self._uris[index]


def chooses_server(uri: str, storage: str) -> bool:
    """Whether the URI says by itself which server is asked for it, and so who gets credentials.

    A query may do that, and of most schemes the authority does (`abfs://container@SERVER`). That of a bucket does not.
    A path has neither.
    """
    if uri.startswith("/"):
        return False
    if uri.partition("?")[2] not in {"", split_query(storage)[2]}:
        return True
    place = _PLACE.match(uri)
    return place is not None and place[1] not in BUCKETS and place[0] != _place_of(storage)


def _place_of(uri: str) -> str | None:
    place = _PLACE.match(uri)
    return place and place[0]


def reached_as(storage: str, uri: str) -> str:
    """The URI with the storage's query in place of its own."""
    _, mark, query = split_query(storage)
    return f"{split_query(uri)[0]}{mark}{query}"
