"""Which checkpoints of a trial are on the storage, and which of them may be removed."""

import threading
from collections.abc import Callable, Collection

from trainer.slot.assignment import Assignment

EARLIER = -1
"""Stands for the report of a checkpoint that an earlier attempt has saved."""


class CheckpointLedger:
    """The checkpoints that the service knows. `remove(uri)` gets each directory that is no longer needed.

    A function may choose the names of its checkpoints, and use one again. So `spare(uri)` gets each directory that is
    about to be saved, and returns once it is not removed. `add_known` and `remove_uncounted` are called from one
    thread, `will_save` from others; the other methods once there are no more such calls.
    """

    def __init__(self, assignment: Assignment, remove: Callable[[str], None], spare: Callable[[str], None]) -> None:
        self._run = assignment.run_name
        self._storage_path = assignment.storage_path
        self._keep = assignment.keep_checkpoints
        self._remove, self._spare = remove, spare
        self._earlier = frozenset(assignment.earlier_checkpoints)
        self._earlier_runs = list(assignment.earlier_runs)
        # By URI: the report that saved it. Oldest first; those of earlier attempts are the oldest.
        self._known = dict.fromkeys(assignment.earlier_checkpoints, EARLIER)
        self._newest_save: dict[str, int] = {}
        self._lock = threading.Lock()

    def will_save(self, sequence: int, name: str) -> None:
        """A rank is about to save the checkpoint of this report under a name that the function has chosen."""
        uri = self.uri(f"{self._run}/{name}")
        with self._lock:
            self._newest_save[uri] = max(sequence, self._newest_save.get(uri, EARLIER))
        self._spare(uri)

    def add_known(self, uri: str, sequence: int, kept: Collection[str] = ()) -> None:
        """The service has stored this checkpoint: it may resume from it, so the oldest may go. Until then none may.

        Those in `kept` stay, however old they are.
        """
        self._known.pop(uri, None)
        self._known[uri] = sequence
        for old in list(self._known)[: -self._keep]:
            if old not in kept:
                self._remove_save(old, self._known.pop(old))
        if self._earlier.isdisjoint(self._known):
            while self._earlier_runs:
                self._remove(self.uri(self._earlier_runs.pop()))

    def remove_uncounted(self, uri: str, sequence: int) -> None:
        """The service will never resume from it, unless a known one has the same name, whose files it has replaced."""
        if uri not in self._known:
            self._remove_save(uri, sequence)

    def _remove_save(self, uri: str, sequence: int) -> None:
        """Remove what this report saved, unless it is being saved anew, or has been."""
        with self._lock:
            if self._newest_save.get(uri, EARLIER) <= sequence:
                self._remove(uri)

    def uri_of(self, path: str) -> str:
        """The URI of a checkpoint of this run. `path` is that of Ray's filesystem, which has no scheme."""
        return self.uri(f"{self._run}/{path.rstrip('/').rpartition(f'/{self._run}/')[2]}")

    def known_names(self) -> list[str]:
        """The names, within this run's folder, of the checkpoints that the service knows."""
        paths = [uri.partition("?")[0].rpartition(f"/{self._run}/")[2] for uri in self._known]
        return [path.partition("/")[0] for path in paths]

    def folder(self) -> str:
        """The URI of this run's folder."""
        return self.uri(self._run)

    def uri(self, name: str) -> str:
        """The URI of a directory below the experiment's storage, which may be a URI with a query."""
        folder, mark, query = self._storage_path.partition("?")
        return f"{folder.rstrip('/')}/{name}{mark}{query}"
