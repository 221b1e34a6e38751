"""The event log: gapless per experiment, written under the experiment's lock, in the transaction of the change."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
