"""Which process works under the name of an agent, and with which nodes."""

from datetime import datetime, timedelta

from service.errors import AgentNameTaken
from service.runtime.context import Context
from service.store.agents import is_held_by
from service.store.json_of_other_versions import stored
from service.store.sql.database import database_now
from service.store.sql.get_or_create import get_or_create
from service.store.tables import AgentRow
from trainer.wire import Claim, Instance


def register_agent(context: Context, name: str, message: Claim) -> None:
    """Store that the agent is connected, and its nodes. Raises AgentNameTaken for a second process under one name."""
    with context.database.write() as session:
        now = database_now(session)
        row = get_or_create(session, AgentRow, name, nodes=[], first_seen_at=now, last_seen_at=now)
        if message.instance is not None:
            seconds = context.settings.lease_seconds + message.wait_seconds
            _take_name(row, message.instance, message.replaces, now + timedelta(seconds=seconds))
        # Without default fields, because older services refuse unknown ones.
        row.nodes = [node.model_dump(mode="json", exclude_defaults=True) for node in message.nodes]
        row.storage_error = message.storage_error
        row.last_seen_at = now


def release_name(context: Context, name: str, instance: Instance) -> None:
    """Free the name of an agent that has ended, unless another process has taken the name since."""
    with context.database.write() as session:
        row = session.get(AgentRow, name, with_for_update=True)
        if row is not None and is_held_by(row, instance):
            row.instance = row.name_expires_at = None
    context.capacity_freed.notify()


def _take_name(row: AgentRow, instance: Instance, replaces: Instance | None, until: datetime) -> None:
    holder = stored(Instance, row.instance) if row.instance else None
    if holder is not None and holder not in (instance, replaces):
        raise AgentNameTaken(
            f"another agent uses the name {row.name!r}: process {holder.pid} at {holder.place.split()[0]}. Give this "
            "agent a name of its own; or end the other one, and this one takes over its slots",
            holder=holder.model_dump(),
        )
    row.instance, row.name_expires_at = instance.model_dump(mode="json"), until
