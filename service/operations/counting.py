"""How many trials of each status experiments have: counted again when something has happened in them, not before."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from sqlalchemy.orm import Session

from service.store.tables import ExperimentRow
from service.store.trials import counts_of_all

MAX_COUNTED = 2000

_counted: OrderedDict[str, tuple[int, dict[str, int]]] = OrderedDict()
_guard = Lock()


def trial_counts(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, dict[str, int]]:
    """By experiment and status, also those statuses that none has.

    No trial comes or moves without an event, so that what was counted at an event stands until the next one. What is
    counted may be newer than the row that it is kept with, on PostgreSQL; then so is the next row.
    """
    known = {row.id: counts for row in experiments if (counts := _known(row)) is not None}
    changed = {row.id: row.event_count for row in experiments if row.id not in known}
    counted = counts_of_all(session, changed) if changed else {}
    with _guard:
        for id_, counts in counted.items():
            _counted[id_] = changed[id_], counts
            _counted.move_to_end(id_)
        while len(_counted) > MAX_COUNTED:
            _counted.popitem(last=False)
    return known | counted


def _known(experiment: ExperimentRow) -> dict[str, int] | None:
    event, counts = _counted.get(experiment.id, (None, None))
    return counts if event == experiment.event_count else None
