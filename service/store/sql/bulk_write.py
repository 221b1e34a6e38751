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
    """The new rows of a kind have the same columns, what changes has a primary key of one column.

    Nothing may depend on what is written first: PostgreSQL writes all of it in one statement, no part of which sees
    another. So no row is among several changes, or both new and changed; and no new row refers to another one, or has
    what is unique from one that changes. The new rows of a kind get their ids in the order given.
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
    written: dict[Part, dict[str, Any]] = {}
    for kind, changes in changed:
        names = tuple(sorted(next(iter(changes.values()))))
        written[False, _table(kind), names] = {"rows": _json(_keyed(changes)), "keys": list(changes)}
    for kind, rows in added:
        written[True, _table(kind), tuple(sorted(rows[0]))] = {"rows": _json(rows)}
    # Always in one order, whatever came first: each order would be prepared as a statement of its own.
    parts = sorted(written, key=lambda part: (part[0], part[1].name, part[2]))
    documents = {
        f"{name}{place}": document for place, part in enumerate(parts) for name, document in written[part].items()
    }
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


@lru_cache(maxsize=1000)
def _moment(value: datetime) -> str:
    """Most of a transaction's are the same."""
    return value.isoformat()
