"""What a change of the schema takes away from services that know only the schema before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, inspect, text

Columns = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """`uniques` and `keys` are the columns of unique indexes and of foreign keys."""

    columns: dict[str, dict[str, Any]]
    uniques: set[Columns]
    keys: set[Columns]
    checks: set[str]


@dataclass(frozen=True)
class Schema:
    """`oldest` is the oldest revision whose services work with it, as stored; None before that was stored."""

    tables: dict[str, Table]
    oldest: str | None


def schema_of(engine: Engine) -> Schema:
    inspector = inspect(engine)
    names = [name for name in inspector.get_table_names() if name != "alembic_version"]
    tables = {
        name: Table(
            {column["name"]: dict(column) for column in inspector.get_columns(name)},
            {tuple(map(str, one["column_names"])) for one in inspector.get_indexes(name) if one["unique"]},
            {tuple(one["constrained_columns"]) for one in inspector.get_foreign_keys(name)},
            {str(one["sqltext"]) for one in inspector.get_check_constraints(name)},
        )
        for name in names
    }
    with engine.connect() as connection:
        query = text("select oldest_revision from schema_compatibility")
        return Schema(tables, connection.scalar(query) if "schema_compatibility" in names else None)


def faults(before: Schema, after: Schema) -> Iterator[str]:
    """Each is a sentence; none if the change only adds, so that earlier services read and write as before."""
    for name, table in before.tables.items():
        if name not in after.tables:
            yield f"{name} is removed"
            continue
        yield from (f"{name}.{fault}" for fault in _of_columns(table, after.tables[name]))
        yield from (f"{name}: {fault}" for fault in _of_constraints(table, after.tables[name]))


def _of_columns(before: Table, after: Table) -> Iterator[str]:
    for name, column in before.columns.items():
        if (new := after.columns.get(name)) is None:
            yield f"{name} is removed"
        elif str(new["type"]) != str(column["type"]):
            yield f"{name} has another type"
        elif column["nullable"] and not new["nullable"]:
            yield f"{name} must be given"
    for name, column in after.columns.items():
        if name not in before.columns and not column["nullable"] and column["default"] is None:
            yield f"{name} is new, and must be given"


def _of_constraints(before: Table, after: Table) -> Iterator[str]:
    """A constraint on a new column does not apply to rows without it."""
    known = before.columns.keys()
    yield from (f"{', '.join(one)} must be unique" for one in after.uniques - before.uniques if known >= set(one))
    yield from (f"{', '.join(one)} must refer to a row" for one in after.keys - before.keys if known >= set(one))
    if after.checks - before.checks:
        yield "there is a new check"
