"""The loop that removes the checkpoints that their experiments no longer keep."""

from service.operations.checkpoints.retention_removal import remove_unneeded
from service.runtime.context import Context
from service.store.checkpoints.checkpoints import experiments_with_retention


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
        unpinned = set(self._context.unpinned)
        found = dict.fromkeys(unpinned, 0) | found
        self._seen = {id_: event for id_, event in self._seen.items() if id_ in found}
        errors: list[Exception] = []
        for id_, event in found.items():
            if self._seen.get(id_) == event and id_ not in unpinned:
                continue
            try:
                may_change = remove_unneeded(self._context, id_)
            except Exception as error:  # noqa: BLE001 - the other experiments' turn comes, too
                errors.append(error)
                continue
            if not may_change:
                self._seen[id_] = event
                self._context.unpinned.discard(id_)
        if errors:
            raise ExceptionGroup("checkpoints cannot be removed", errors)
