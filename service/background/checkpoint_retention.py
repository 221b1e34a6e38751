"""The loop that removes the checkpoints that their experiments no longer keep."""

from service.operations.checkpoints.retention_removal import remove_unneeded
from service.runtime.context import Context
from service.store.checkpoints.checkpoints import (
    RetainingExperiment,
    experiments_with_retention,
    note_unpinned_done,
)


class CheckpointRetention:
    """It looks again at an experiment when that has a new event, and while one of its trials has only just ended.

    Of experiments that keep all trials' checkpoints, only at those in which one was unpinned.
    """

    name = "checkpoint retention"
    every = 5.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: dict[str, int] = {}

    def run_once(self) -> None:
        with self._context.database.read() as session:
            found = experiments_with_retention(session)
        ids = {one.id for one in found}
        self._seen = {id_: event for id_, event in self._seen.items() if id_ in ids}
        errors: list[Exception] = []
        for one in found:
            try:
                if self._seen.get(one.id) != one.event_count or one.has_unpinned:
                    self._apply(one)
            except Exception as error:  # noqa: BLE001 - the other experiments' turn comes, too
                errors.append(error)
        if errors:
            raise ExceptionGroup("checkpoints cannot be removed", errors)

    def _apply(self, experiment: RetainingExperiment) -> None:
        if remove_unneeded(self._context, experiment.id):
            return
        self._seen[experiment.id] = experiment.event_count
        if experiment.has_unpinned:
            with self._context.database.write() as session:
                note_unpinned_done(session, experiment.id, experiment.event_count)
