"""Queries on the decisions of early stopping."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import DecisionRow


def decisions_of(session: Session, trial_id: str, after: int, limit: int) -> Sequence[DecisionRow]:
    query = select(DecisionRow).where(DecisionRow.trial_id == trial_id, DecisionRow.id > after)
    return session.scalars(query.order_by(DecisionRow.id).limit(limit)).all()
