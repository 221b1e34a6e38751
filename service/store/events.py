"""The event log: gapless per experiment, written under the experiment's lock, in the transaction of the change."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.sql.write_session import add_later, change_later
from service.store.tables import EventRow, ExperimentRow


def append_event(
    session: Session,
    experiment: ExperimentRow,
    kind: str,
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
    """By experiment; those that do not exist are missing."""
    query = select(ExperimentRow.id, ExperimentRow.event_count, ExperimentRow.status)
    rows = session.execute(query.where(ExperimentRow.id.in_(experiment_ids)))
    return {id_: LogHead(event_count, status) for id_, event_count, status in rows}
