"""The event log: gapless per experiment, written under the experiment's lock, in the transaction of the change."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.event_kinds import EventKind
from service.store.sql.bulk_writes import add_later, change_later
from service.store.tables import EventRow, ExperimentRow

EVENTS_PAGE = 5000
"""How many events `events_of_kinds` reads in a session."""


def append_event(
    session: Session,
    experiment: ExperimentRow,
    kind: EventKind,
    data: dict[str, Any],
    *,
    at: datetime,
    trial_id: str | None = None,
) -> int:
    """Append an event in the caller's transaction, which holds the experiment's lock, and return its number."""
    change_later(experiment, event_count=experiment.event_count + 1)
    facts = {"kind": kind, "trial_id": trial_id, "data": data, "at": at}
    add_later(session, EventRow, {"experiment_id": experiment.id, "seq": experiment.event_count, **facts})
    return experiment.event_count


def events_after(session: Session, experiment_id: str, seq: int, limit: int) -> Sequence[EventRow]:
    query = select(EventRow).where(EventRow.experiment_id == experiment_id, EventRow.seq > seq)
    return session.scalars(query.order_by(EventRow.seq).limit(limit)).all()


class LogHead(NamedTuple):
    """How far an experiment's event log goes, and the experiment's status at that event or before."""

    event_count: int
    status: str


def heads_of(session: Session, experiment_ids: Collection[str]) -> dict[str, LogHead]:
    """The heads of the logs, by experiment; experiments that do not exist are missing."""
    query = select(ExperimentRow.id, ExperimentRow.event_count, ExperimentRow.status)
    rows = session.execute(query.where(ExperimentRow.id.in_(experiment_ids)))
    return {id_: LogHead(event_count, status) for id_, event_count, status in rows}


def newest_data(session: Session, experiment_id: str, kind: str) -> dict[str, Any] | None:
    """The data of the experiment's newest event of this kind. All events are looked through that came later."""
    query = select(EventRow.data).where(EventRow.experiment_id == experiment_id, EventRow.kind == kind)
    return session.scalar(query.order_by(EventRow.seq.desc()).limit(1))


class EventOfKind(NamedTuple):
    """The columns of an event that a replay needs."""

    seq: int
    kind: str
    trial_id: str | None
    data: dict[str, Any]


def events_of_kinds(
    open_session: Callable[[], AbstractContextManager[Session]],
    experiment_id: str,
    kinds: Sequence[str],
    last: int,
    *,
    after: int = 0,
) -> Iterator[EventOfKind]:
    """Yield events of these kinds after number `after` and up to `last`.

    Each page is read in a session from `open_session`.
    """
    seq = after
    while True:
        with open_session() as session:
            page = _page_after(session, experiment_id, kinds, seq, last)
        yield from page
        if len(page) < EVENTS_PAGE:
            return
        seq = page[-1].seq


def _page_after(session: Session, experiment_id: str, kinds: Sequence[str], seq: int, last: int) -> list[EventOfKind]:
    query = select(EventRow.seq, EventRow.kind, EventRow.trial_id, EventRow.data).where(
        EventRow.experiment_id == experiment_id, EventRow.seq > seq, EventRow.seq <= last, EventRow.kind.in_(kinds)
    )
    return [EventOfKind(*row) for row in session.execute(query.order_by(EventRow.seq).limit(EVENTS_PAGE))]
