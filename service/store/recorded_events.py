"""Reads the recorded events of an experiment in their order, page by page."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import EventRow

PAGE = 5000


class RecordedEvent(NamedTuple):
    """The columns of an event that a replay needs."""

    seq: int
    kind: str
    trial_id: str | None
    data: dict[str, Any]


def recorded_events(
    open_session: Callable[[], AbstractContextManager[Session]],
    experiment_id: str,
    kinds: Sequence[str],
    last: int,
    *,
    after: int = 0,
) -> Iterator[RecordedEvent]:
    """Yield events of these kinds after number `after` and up to `last`.

    Each page is read in a session from `open_session`.
    """
    seq = after
    while True:
        with open_session() as session:
            page = _page_after(session, experiment_id, kinds, seq, last)
        yield from page
        if len(page) < PAGE:
            return
        seq = page[-1].seq


def _page_after(session: Session, experiment_id: str, kinds: Sequence[str], seq: int, last: int) -> list[RecordedEvent]:
    query = select(EventRow.seq, EventRow.kind, EventRow.trial_id, EventRow.data).where(
        EventRow.experiment_id == experiment_id, EventRow.seq > seq, EventRow.seq <= last, EventRow.kind.in_(kinds)
    )
    return [RecordedEvent(*row) for row in session.execute(query.order_by(EventRow.seq).limit(PAGE))]
