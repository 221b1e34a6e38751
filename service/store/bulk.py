"""Many rows of a kind with one statement."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    JSON,
    Connection,
    Executable,
    Table,
    TableValuedAlias,
    Text,
    any_,
    bindparam,
    column,
    func,
    insert,
    select,
    update,
)
from sqlalchemy import cast as as_type
from sqlalchemy.orm import DeclarativeBase

Kind = type[DeclarativeBase]
Rows = list[dict[str, Any]]
Changes = dict[Any, dict[str, Any]]
"""New values of some columns, by the row's primary key."""


def insert_rows(connection: Connection, kind: Kind, rows: Rows) -> None:
    """All of them with the same columns."""
    table = _table(kind)
    if connection.dialect.name == "sqlite":
        connection.execute(insert(table), rows)
    else:
        connection.execute(_insert_json(table, tuple(rows[0])), {"rows": _json(rows)})


def update_rows(connection: Connection, kind: Kind, rows: Changes) -> None:
    """By their primary key, which is one column; all of them in the same columns."""
    table, named = _table(kind), [{"key": key, **values} for key, values in rows.items()]
    if connection.dialect.name == "sqlite":
        connection.execute(_update_one(table), named)
    else:
        names = tuple(name for name in named[0] if name != "key")
        connection.execute(_update_json(table, names), {"rows": _json(named), "keys": list(rows)})


def _table(kind: Kind) -> Table:
    return cast(Table, kind.__table__)


@cache
def _update_one(table: Table) -> Executable:
    [key] = table.primary_key
    return update(table).where(key == bindparam("key"))


# psycopg would send PostgreSQL each row by itself. As one document they are a statement that is always the same: it
# stays prepared, and costs the client what writing JSON costs.


@cache
def _insert_json(table: Table, names: tuple[str, ...]) -> Executable:
    source = _from_json(table, {name: name for name in names})
    return insert(table).from_select(names, select(*(source.c[name] for name in names)))


@cache
def _update_json(table: Table, names: tuple[str, ...]) -> Executable:
    [key] = table.primary_key
    source = _from_json(table, {"key": key.name, **{name: name for name in names}})
    # By the keys besides, or it would take the document for a hundred rows, and read the table whole to find them.
    wanted = key == any_(bindparam("keys", type_=ARRAY(key.type)))
    return update(table).values({name: source.c[name] for name in names}).where(key == source.c.key, wanted)


def _from_json(table: Table, columns: Mapping[str, str]) -> TableValuedAlias:
    """`columns`: the name in the document, and that of the column whose type it has."""
    typed = [column(name, table.c[of].type) for name, of in columns.items()]
    document = as_type(bindparam("rows", type_=Text), JSON)
    return func.json_to_recordset(document).table_valued(*typed).render_derived(name="given", with_types=True)


def _json(rows: Collection[Mapping[str, Any]]) -> str:
    return json.dumps(rows, default=_moment)


def _moment(value: datetime) -> str:
    return value.isoformat()
