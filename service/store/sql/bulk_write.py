"""Writes many rows of a table with one statement; on PostgreSQL, the rows of all tables."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from pydantic_core import to_json
from sqlalchemy import (
    ARRAY,
    JSON,
    Connection,
    Executable,
    Insert,
    Table,
    TableValuedAlias,
    Text,
    Update,
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

KEY = "key"
"""The primary key of a changed row, beside the new values of its columns. No column has this name."""


def write_rows(
    connection: Connection, changed: Sequence[tuple[Kind, Rows]], added: Sequence[tuple[Kind, Rows]]
) -> None:
    """Each group of rows has the same columns; changed ones also have their `KEY`, which is a single column.

    The result must not depend on the order: PostgreSQL writes everything in one statement, whose parts do not see each
    other. So a row is changed only once and not both new and changed, and a new row neither refers to another new row
    nor takes over a unique value of a changed row. The new rows of a table get their ids in the order given.
    """
    if connection.dialect.name == "sqlite":
        for kind, rows in changed:
            connection.execute(_update_one(kind), rows)
        for kind, rows in added:
            connection.execute(_insert_one(kind), rows)
    elif changed or added:
        _write_json(connection, changed, added)


def table_of(kind: Kind) -> Table:
    return cast(Table, kind.__table__)


@cache
def _update_one(kind: Kind) -> Executable:
    [key] = table_of(kind).primary_key
    return update(table_of(kind)).where(key == bindparam(KEY))


@cache
def _insert_one(kind: Kind) -> Executable:
    return insert(table_of(kind))


# psycopg would send each row separately. With the rows as JSON documents there is one statement, which is always the
# same: it stays prepared, takes one round trip, and costs the client as much as serializing JSON.

Part = tuple[bool, Table, tuple[str, ...]]
"""Whether the rows are new, their table, and their columns."""


def _write_json(
    connection: Connection, changed: Sequence[tuple[Kind, Rows]], added: Sequence[tuple[Kind, Rows]]
) -> None:
    written: dict[Part, dict[str, Any]] = {}
    for kind, rows in changed:
        names = tuple(sorted(rows[0].keys() - {KEY}))
        written[False, table_of(kind), names] = {"rows": _json(rows), "keys": [row[KEY] for row in rows]}
    for kind, rows in added:
        written[True, table_of(kind), tuple(sorted(rows[0]))] = {"rows": _json(rows)}
    # In a fixed order, because each order would be prepared as a statement of its own.
    parts = sorted(written, key=lambda part: (part[0], part[1].name, part[2]))
    documents = {
        f"{name}{index}": document for index, part in enumerate(parts) for name, document in written[part].items()
    }
    connection.execute(_statement(tuple(parts)), documents)


@lru_cache(maxsize=500)
def _statement(parts: tuple[Part, ...]) -> Executable:
    *others, last = [
        (_insert_json if is_new else _update_json)(table, names, index)
        for index, (is_new, table, names) in enumerate(parts)
    ]
    return last.add_cte(*(one.cte(f"part{index}") for index, one in enumerate(others)))


def _insert_json(table: Table, names: tuple[str, ...], index: int) -> Insert:
    source = _from_json(table, {name: name for name in names}, index)
    return insert(table).from_select(names, select(*(source.c[name] for name in names)))


def _update_json(table: Table, names: tuple[str, ...], index: int) -> Update:
    [key] = table.primary_key
    source = _from_json(table, {KEY: key.name, **{name: name for name in names}}, index)
    # Also by the keys: the planner assumes that a document has a hundred rows, and would read the whole table.
    wanted = key == any_(bindparam(f"keys{index}", type_=ARRAY(key.type)))
    return update(table).values({name: source.c[name] for name in names}).where(key == source.c[KEY], wanted)


def _from_json(table: Table, columns: Mapping[str, str], index: int) -> TableValuedAlias:
    """`columns` maps a name in the document to the column whose type it has."""
    typed = [column(name, table.c[of].type) for name, of in columns.items()]
    document = as_type(bindparam(f"rows{index}", type_=Text), JSON)
    recordset = func.json_to_recordset(document).table_valued(*typed)
    return recordset.render_derived(name=f"given{index}", with_types=True)


def _json(rows: Collection[Mapping[str, Any]]) -> str:
    """By pydantic, whose serializer is several times as fast as the standard library's."""
    return to_json(rows, inf_nan_mode="constants").decode()
