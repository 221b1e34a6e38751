"""Queries on directories with checkpoints that agents are to delete."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.orm import Session

from service.store.agents import CONNECTED
from service.store.tables import AgentRow, CheckpointDeletionRow

PASSED_ON_AFTER = timedelta(minutes=10)
"""An agent that is silent for so long may have gone with its name: any agent may then do its deletions."""

LISTED = 100
"""How many deletions an agent gets at a time."""


def add_deletions(session: Session, agents: Iterable[str], directories: Sequence[str], now: datetime) -> None:
    for agent in agents:
        for directory in directories:
            session.add(CheckpointDeletionRow(agent=agent, directory=directory, error=None, created_at=now))


def deletions_for(session: Session, agent: str, now: datetime) -> Sequence[CheckpointDeletionRow]:
    """The deletions of the agent, and of agents that are gone: the oldest first, failed ones last, in turn."""
    query = select(CheckpointDeletionRow).where(_is_for(agent, now))
    tried_at = CheckpointDeletionRow.tried_at
    order = tried_at.is_not(None), tried_at, CheckpointDeletionRow.id
    return session.scalars(query.order_by(*order).limit(LISTED)).all()


def remove_deletions(session: Session, ids: Sequence[int]) -> None:
    session.execute(delete(CheckpointDeletionRow).where(CheckpointDeletionRow.id.in_(ids)))


def note_failure(session: Session, id_: int, error: str, now: datetime) -> None:
    failed = update(CheckpointDeletionRow).where(CheckpointDeletionRow.id == id_)
    session.execute(failed.values(error=error, tried_at=now))


def count_deletions(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(CheckpointDeletionRow)) or 0


def _is_for(agent: str, now: datetime) -> ColumnElement[bool]:
    present = select(AgentRow.name).where(AgentRow.last_seen_at > now - max(PASSED_ON_AFTER, CONNECTED))
    return or_(CheckpointDeletionRow.agent == agent, CheckpointDeletionRow.agent.not_in(present))
