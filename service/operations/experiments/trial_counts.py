"""How many trials experiments have in each status, cached until the experiment's next event."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from service.runtime.caches.row_cache import RowCache
from service.store.tables import ExperimentRow
from service.store.trials.trials import counts_of_all

_counted = RowCache[int, dict[str, int]]()


def trial_counts(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, dict[str, int]]:
    """Counts by experiment and status, with 0 for statuses that no trial has.

    Every new trial and every change of a status appends an event, so a count holds until the next event. On PostgreSQL
    a count may be newer than the row whose event number it is cached under; the next read then has a newer number.
    """
    events = {row.id: row.event_count for row in experiments}
    known = {id_: counts for id_, event in events.items() if (counts := _counted.get(id_, event)) is not None}
    changed = events.keys() - known
    counted = counts_of_all(session, changed) if changed else {}
    for id_, counts in counted.items():
        _counted.put(id_, events[id_], counts)
    return known | counted
