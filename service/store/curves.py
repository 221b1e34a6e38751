"""What was reported to an experiment, in the order in which it was taken."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import EventRow


class Told(NamedTuple):
    seq: int
    kind: str
    trial_id: str | None
    data: dict[str, Any]


def told_after(
    session: Session, experiment_id: str, kinds: Sequence[str], seq: int, last: int, limit: int
) -> list[Told]:
    """Events of these kinds after `seq`, up to `last`, at most `limit`."""
    query = select(EventRow.seq, EventRow.kind, EventRow.trial_id, EventRow.data).where(
        EventRow.experiment_id == experiment_id, EventRow.seq > seq, EventRow.seq <= last, EventRow.kind.in_(kinds)
    )
    return [Told(*row) for row in session.execute(query.order_by(EventRow.seq).limit(limit))]
