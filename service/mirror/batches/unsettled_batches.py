"""Batches that this process has begun to write to MLflow and has not stored as written."""

from service.store import mirrors
from service.store.sql.database import Database


class UnsettledBatches:
    """If another service goes on from such a batch, it may have written what this one has then overwritten.

    This service was slow, and lost its lock. The other one writes the events again from the beginning of the batch on.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._after: dict[str, int] = {}

    def began(self, experiment_id: str, after: int) -> None:
        """A batch with the events after `after` is about to be written."""
        self._after[experiment_id] = min(after, self._after.get(experiment_id, after))

    def settled(self, experiment_id: str) -> None:
        """What this process has written is stored as written."""
        self._after.pop(experiment_id, None)

    def rewind_passed(self) -> set[str]:
        """Have the events written again, once, from batches on from which another service has gone on.

        Returns the experiments concerned. Another service is to write them, because this one may fail at them again.
        """
        rewound: set[str] = set()
        if not self._after:
            return rewound
        with self._database.read() as session:
            rows = mirrors.mirrors_of(session, self._after)
        for experiment_id, after in list(self._after.items()):
            cursor = rows[experiment_id].cursor if experiment_id in rows else 0
            if cursor > after:
                with self._database.write() as session:
                    mirrors.rewind(session, experiment_id, after)
                rewound.add(experiment_id)
            if cursor != after or experiment_id not in rows:
                del self._after[experiment_id]
        return rewound
