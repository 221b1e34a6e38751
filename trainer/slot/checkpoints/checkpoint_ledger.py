"""Which checkpoints of a trial are on the storage, and which of them may be removed."""

import posixpath
from collections.abc import Callable, Collection
from itertools import accumulate

from trainer.slot.assignment import Assignment
from trainer.storage_uri import split_query


class CheckpointLedger:
    """The checkpoints that the service knows. `remove(uri)` gets each directory that is no longer needed.

    `add_known` and `remove_uncounted` are called from one thread, `unused_name` from another one; the other methods
    once there are no more such calls.
    """

    def __init__(self, assignment: Assignment, remove: Callable[[str], None]) -> None:
        self._run = assignment.run_name
        self._storage_path = assignment.storage_path
        self._keep = assignment.keep_checkpoints
        self._remove = remove
        self._earlier = frozenset(assignment.earlier_checkpoints)
        self._earlier_runs = list(assignment.earlier_runs)
        self._resumed = assignment.resume
        # By URI, the sequence of the newest report that has saved it. Those of earlier attempts are the oldest.
        self._known = dict.fromkeys(assignment.earlier_checkpoints, -1)
        self._kept: frozenset[str] | None = None
        self._is_closed = False
        # The reports that have used a name, and that were the first to save below a folder.
        self._named_by: dict[str, int] = {}
        self._folder_of: dict[str, int] = {}

    def unused_name(self, sequence: int, name: str) -> str:
        """The name under which all ranks save the checkpoint of this report: `name`, unless another one has used it.

        A checkpoint that replaced an earlier one, file by file, would leave a mixture if its writer died. And one in
        the directory of another one would be removed with it.
        """
        name = posixpath.normpath(name)
        while (taken := self._taken_part(sequence, name)) is not None:
            name = f"{taken}-{sequence}{name.removeprefix(taken)}"
        *folders, name = _with_folders(name)
        self._named_by[name] = sequence
        for folder in folders:
            self._folder_of.setdefault(folder, sequence)
        return name

    def _taken_part(self, sequence: int, name: str) -> str | None:
        """What of the path is another report's checkpoint, or has one below it; None if nothing is."""
        for path in _with_folders(name):
            if self._named_by.get(path, sequence) != sequence:
                return path
        return name if self._folder_of.get(name, sequence) != sequence else None

    def add_known(self, sequence: int, uri: str, kept: Collection[str] = ()) -> None:
        """The service knows the checkpoint of this report, and keeps those in `kept`: the others go, and never earlier.

        What the training function may still read stays until `close`. A service of an earlier version lists what it
        keeps only if that is more than the newest ones.
        """
        self._known[uri] = max(sequence, self._known.get(uri, sequence))
        self._kept = frozenset(kept or self._newest(self._keep))
        self._remove_others(self._kept)

    def close(self) -> None:
        """The workers have ended: what they could read may go, too."""
        self._is_closed = True
        if self._kept is not None:
            self._remove_others(self._kept)

    def _newest(self, count: int) -> list[str]:
        """In the order of the reports: one that is saved in the background may become known after a later one."""
        return sorted(self._known, key=self._known.__getitem__)[-count:]

    def _remove_others(self, kept: Collection[str]) -> None:
        in_use = [] if self._is_closed else [self._resumed, *self._newest(1)]
        for uri in list(self._known):
            if uri not in kept and uri not in in_use:
                self._known.pop(uri)
                self._remove(uri)
        if self._earlier.isdisjoint(self._known):
            self._remove_earlier_runs(kept)

    def _remove_earlier_runs(self, kept: Collection[str]) -> None:
        """Except those of kept checkpoints: a pinned one that was missing at the start may be there again."""
        needed = [run for run in self._earlier_runs if any(f"/{run}/" in uri for uri in kept)]
        for run in reversed(self._earlier_runs):
            if run not in needed:
                self._remove(self.uri(run))
        self._earlier_runs = needed

    def remove_uncounted(self, uri: str) -> None:
        """The service will never resume from it, unless an upload function has saved it where a known one was."""
        if uri not in self._known:
            self._remove(uri)

    def uri_of(self, path: str) -> str:
        """The URI of a checkpoint of this run. `path` is that of Ray's filesystem, which has no scheme."""
        return self.uri(f"{self._run}/{path.rstrip('/').rpartition(f'/{self._run}/')[2]}")

    def known_names(self) -> list[str]:
        """The names, within this run's folder, of the checkpoints that the service knows."""
        paths = [split_query(uri)[0].rpartition(f"/{self._run}/")[2] for uri in self._known]
        return [path.partition("/")[0] for path in paths]

    def folder(self) -> str:
        """The URI of this run's folder."""
        return self.uri(self._run)

    def uri(self, name: str) -> str:
        """The URI of a directory below the experiment's storage, which may be a URI with a query."""
        folder, mark, query = split_query(self._storage_path)
        return f"{folder.rstrip('/')}/{name}{mark}{query}"


def _with_folders(name: str) -> list[str]:
    """The folders that the relative path leads through, the outermost first, and the path itself."""
    return list(accumulate(name.split("/"), posixpath.join))
