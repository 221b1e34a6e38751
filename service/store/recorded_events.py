"""What was reported to an experiment, in the order in which it was taken."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import EventRow

PAGE = 5000


class Told(NamedTuple):
    seq: int
    kind: str
    trial_id: str | None
    data: dict[str, Any]


def told(
    reading: Callable[[], AbstractContextManager[Session]], experiment_id: str, kinds: Sequence[str], last: int
) -> Iterator[Told]:
    """Events of these kinds up to `last`, page by page, each in a session of its own as `reading` gives it."""
    seq = 0
    while True:
        with reading() as session:
            page = _after(session, experiment_id, kinds, seq, last)
        yield from page
        if len(page) < PAGE:
            return
        seq = page[-1].seq


def _after(session: Session, experiment_id: str, kinds: Sequence[str], seq: int, last: int) -> list[Told]:
    query = select(EventRow.seq, EventRow.kind, EventRow.trial_id, EventRow.data).where(
        EventRow.experiment_id == experiment_id, EventRow.seq > seq, EventRow.seq <= last, EventRow.kind.in_(kinds)
    )
    return [Told(*row) for row in session.execute(query.order_by(EventRow.seq).limit(PAGE))]
