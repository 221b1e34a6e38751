"""Queries on agents."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from service.store.json_of_other_versions import stored
from service.store.tables import AgentRow
from trainer.wire import Instance, Node

CONNECTED = timedelta(seconds=90)
"""An agent counts as connected for this long after its last claim. A claim waits for 60 s at most."""


def is_connected(agent: AgentRow, now: datetime) -> bool:
    return agent.last_seen_at > now - CONNECTED


def are_connected(now: datetime) -> ColumnElement[bool]:
    """The condition for agents of which `is_connected` is true."""
    return AgentRow.last_seen_at > now - CONNECTED


def page_of_agents(session: Session, *, after: str, limit: int) -> Sequence[AgentRow]:
    """The agents after the name `after`, by name."""
    return session.scalars(select(AgentRow).where(AgentRow.name > after).order_by(AgentRow.name).limit(limit)).all()


def expired_names(session: Session, now: datetime) -> Sequence[str]:
    return session.scalars(select(AgentRow.name).where(AgentRow.name_expires_at < now).order_by(AgentRow.name)).all()


def works_under(session: Session, name: str, instance: Instance) -> bool:
    """Whether this process has the agent's name now: it has neither released nor lost it."""
    row = session.get(AgentRow, name)
    return row is not None and is_held_by(row, instance)


def is_held_by(agent: AgentRow, instance: Instance) -> bool:
    return agent.instance == instance.model_dump(mode="json")


def storage_error_of(session: Session, agent: str) -> str | None:
    """Why the agent cannot write to the storage, if it cannot."""
    return session.scalar(select(AgentRow.storage_error).where(AgentRow.name == agent))


def storage_errors(session: Session, now: datetime) -> dict[str, str | None]:
    """What `storage_error_of` returns for each connected agent, by its name."""
    query = select(AgentRow.name, AgentRow.storage_error).where(are_connected(now))
    return dict(session.execute(query.order_by(AgentRow.name)).all())


def connected_agents(session: Session, now: datetime) -> Sequence[AgentRow]:
    """The connected agents, by name."""
    return session.scalars(select(AgentRow).where(are_connected(now)).order_by(AgentRow.name)).all()


def nodes_of(agent: AgentRow) -> list[Node]:
    return [stored(Node, node) for node in agent.nodes]


def total_resources(agents: Iterable[AgentRow]) -> dict[str, float]:
    """The sums over the nodes of these agents."""
    totals = Counter[str]()
    for agent in agents:
        for node in agent.nodes:
            totals.update(node["total"])
    return dict(totals)
