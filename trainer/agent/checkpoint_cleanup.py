"""What the agent does about checkpoints that the service no longer needs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainer.agent.checkpoint_deletions import CheckpointDeletions
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover


class CheckpointCleanup:
    """Removes the directories of ended attempts, and deletes what users have deleted, in threads of its own.

    `post_results` tells the service what has become of deletions. The methods are called from one thread.
    """

    def __init__(self, post_results: Callable[[dict[str, Any]], object]) -> None:
        self._post_results = post_results
        self._deletions = CheckpointDeletions()
        self._remover: CheckpointRemover | None = None
        self._removed: set[str] = set()

    def start(self) -> None:
        self._deletions.start()

    def apply(self, answer: Mapping[str, Any]) -> None:
        """Begin what the service asks for in its answer, a `trainer.wire.HeldAttempts` of any version."""
        self._remove_obsolete(answer.get("obsolete", []), answer.get("partly_needed", []))
        self._delete(answer.get("deletions", []))

    def _remove_obsolete(self, directories: Iterable[str], partly_needed: Iterable[Mapping[str, Any]]) -> None:
        """The service names the same directories repeatedly; each is removed once."""
        kept_names: dict[str, list[str]] = {one["directory"]: one["keep"] for one in partly_needed}
        for directory in [*directories, *kept_names]:
            if directory in self._removed:
                continue
            names, remover = kept_names.get(directory), self._started_remover()
            self._removed.add(directory)
            remover.remove_all_except(names, directory) if names else remover.remove(directory)

    def _started_remover(self) -> CheckpointRemover:
        if self._remover is None:
            remover = CheckpointRemover()
            remover.start()
            self._remover = remover
        return self._remover

    def _delete(self, deletions: Iterable[Mapping[str, Any]]) -> None:
        """The answer was given before the service had the results: it may name what is deleted already."""
        if (results := self._deletions.take_results()) is not None:
            self._post_results(results)
        done = set(results["deleted"]) if results is not None else set()
        self._deletions.add(dict(deletion) for deletion in deletions if deletion["id"] not in done)
