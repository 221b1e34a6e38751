"""Alembic's entry point, which only `service.store.sql.schema_upgrade.config` calls: it passes the connection in."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from service.store.sql.column_types import Json, UtcDateTime
from service.store.tables import Base


def render_item(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Writes our column types by name into a new revision, not the types that implement them."""
    if kind == "type" and (item is Json or isinstance(item, UtcDateTime)):
        name = "Json" if item is Json else "UtcDateTime()"
        autogen.imports.add(f"from service.store.sql.column_types import {name.removesuffix('()')}")
        return name
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_item=render_item,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
