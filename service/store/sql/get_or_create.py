"""Rows that several transactions may create at the same time."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session

Row = TypeVar("Row", bound=DeclarativeBase)

_INSERTS: Mapping[str, Callable[[type[Any]], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def get_or_create(session: Session, kind: type[Row], key: str, **values: Any) -> Row:
    """Return the row with this primary key, locked. If there is none, insert it with the `values`.

    If another transaction has inserted it meanwhile, this one waits for its end, and then returns its row.
    """
    row = session.get(kind, key, with_for_update=True)
    if row is not None:
        return row
    [column] = inspect(kind).primary_key
    insert = _INSERTS[session.get_bind().dialect.name]
    session.execute(insert(kind).values({column.name: key, **values}).on_conflict_do_nothing())
    return session.get_one(kind, key, with_for_update=True)
