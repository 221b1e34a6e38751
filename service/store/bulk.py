"""Many rows of a kind with one statement; on PostgreSQL, of all kinds together."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, cast

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
Changes = dict[Any, dict[str, Any]]
"""New values of some columns, by the row's primary key."""


def write_rows(
    connection: Connection, changed: Sequence[tuple[Kind, Changes]], added: Sequence[tuple[Kind, Rows]]
) -> None:
    """First the changes, then the new rows, of which each has the same columns as the others with it.

    What changes has a primary key of one column, and no row is among several changes.
    """
    if connection.dialect.name == "sqlite":
        for kind, changes in changed:
            connection.execute(_update_one(_table(kind)), _keyed(changes))
        for kind, rows in added:
            connection.execute(insert(_table(kind)), rows)
    elif changed or added:
        _write_json(connection, changed, added)


def _keyed(changes: Changes) -> Rows:
    return [{"key": key, **values} for key, values in changes.items()]


def _table(kind: Kind) -> Table:
    return cast(Table, kind.__table__)


@cache
def _update_one(table: Table) -> Executable:
    [key] = table.primary_key
    return update(table).where(key == bindparam("key"))


# psycopg would send PostgreSQL each row by itself. As documents they are a statement that is always the same: it stays
# prepared, is waited for once, and costs the client what writing JSON costs.

Part = tuple[bool, Table, tuple[str, ...]]
"""Whether rows are new, and of what; and their columns."""


def _write_json(
    connection: Connection, changed: Sequence[tuple[Kind, Changes]], added: Sequence[tuple[Kind, Rows]]
) -> None:
    parts: list[Part] = []
    documents: dict[str, Any] = {}
    for kind, changes in changed:
        documents |= {f"rows{len(parts)}": _json(_keyed(changes)), f"keys{len(parts)}": list(changes)}
        parts.append((False, _table(kind), tuple(next(iter(changes.values())))))
    for kind, rows in added:
        documents[f"rows{len(parts)}"] = _json(rows)
        parts.append((True, _table(kind), tuple(rows[0])))
    connection.execute(_statement(tuple(parts)), documents)


@lru_cache(maxsize=500)
def _statement(parts: tuple[Part, ...]) -> Executable:
    *others, last = [
        (_insert_json if is_new else _update_json)(table, names, place)
        for place, (is_new, table, names) in enumerate(parts)
    ]
    return last.add_cte(*(one.cte(f"part{place}") for place, one in enumerate(others)))


def _insert_json(table: Table, names: tuple[str, ...], place: int) -> Insert:
    source = _from_json(table, {name: name for name in names}, place)
    return insert(table).from_select(names, select(*(source.c[name] for name in names)))


def _update_json(table: Table, names: tuple[str, ...], place: int) -> Update:
    [key] = table.primary_key
    source = _from_json(table, {"key": key.name, **{name: name for name in names}}, place)
    # By the keys besides, or it would take the document for a hundred rows, and read the table whole to find them.
    wanted = key == any_(bindparam(f"keys{place}", type_=ARRAY(key.type)))
    return update(table).values({name: source.c[name] for name in names}).where(key == source.c.key, wanted)


def _from_json(table: Table, columns: Mapping[str, str], place: int) -> TableValuedAlias:
    """`columns`: the name in the document, and that of the column whose type it has."""
    typed = [column(name, table.c[of].type) for name, of in columns.items()]
    document = as_type(bindparam(f"rows{place}", type_=Text), JSON)
    recordset = func.json_to_recordset(document).table_valued(*typed)
    return recordset.render_derived(name=f"given{place}", with_types=True)


def _json(rows: Collection[Mapping[str, Any]]) -> str:
    return json.dumps(rows, default=_moment)


def _moment(value: datetime) -> str:
    return value.isoformat()
