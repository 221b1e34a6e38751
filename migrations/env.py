"""Alembic's entry: the schema is changed through here only. The service passes its connection in."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from service.store.sql.column_types import Json, UtcDateTime
from service.store.tables import Base


def render_item(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Names our column types in a new revision, instead of what they are made of."""
    if kind == "type" and (item is Json or isinstance(item, UtcDateTime)):
        name = "Json" if item is Json else "UtcDateTime()"
        autogen.imports.add(f"from service.store.sql.column_types import {name.removesuffix('()')}")
        return name
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    render_item=render_item,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
