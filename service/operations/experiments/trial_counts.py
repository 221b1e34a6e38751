"""How many trials of each status experiments have: counted again when something has happened in them, not before."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from service.runtime.row_cache import RowCache
from service.store.tables import ExperimentRow
from service.store.trials import counts_of_all

_counted = RowCache[int, dict[str, int]]()


def trial_counts(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, dict[str, int]]:
    """By experiment and status, also those statuses that none has.

    No trial comes or moves without an event, so that what was counted at an event stands until the next one. What is
    counted may be newer than the row that it is kept with, on PostgreSQL; then so is the next row.
    """
    events = {row.id: row.event_count for row in experiments}
    known = {id_: counts for id_, event in events.items() if (counts := _counted.get(id_, event)) is not None}
    changed = events.keys() - known
    counted = counts_of_all(session, changed) if changed else {}
    for id_, counts in counted.items():
        _counted.put(id_, events[id_], counts)
    return known | counted
