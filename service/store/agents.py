"""Queries on agents."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.tables import AgentRow
from trainer.wire import Node

CONNECTED = timedelta(seconds=90)
"""An agent counts as connected for this long after its last claim. A claim waits for 60 s at most."""


def all_agents(session: Session) -> Sequence[AgentRow]:
    return session.scalars(select(AgentRow).order_by(AgentRow.name)).all()


def expired_names(session: Session, now: datetime) -> Sequence[str]:
    return session.scalars(select(AgentRow.name).where(AgentRow.name_expires_at < now).order_by(AgentRow.name)).all()


def nodes_of_connected(session: Session, now: datetime) -> dict[str, list[Node]]:
    recent = session.scalars(select(AgentRow).where(AgentRow.last_seen_at > now - CONNECTED))
    return {row.name: [Node.model_validate(node) for node in row.nodes] for row in recent}
