"""Sessions that write rows nobody changes any more, such as reports and events, many at a time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, insert
from sqlalchemy.orm import DeclarativeBase, Session


class WriteSession(Session):
    """What `Database.write` gives. Rows that are added later are written when it flushes, after its objects."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.later: defaultdict[type[DeclarativeBase], list[dict[str, Any]]] = defaultdict(list)

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        super().flush(objects)
        later, self.later = self.later, defaultdict(list)
        for kind, rows in later.items():
            table = kind.__table__
            assert isinstance(table, Table)  # noqa: S101 - every kind of row has its own
            self.connection().execute(insert(table), rows)


def add_later(session: Session, kind: type[DeclarativeBase], row: dict[str, Any]) -> None:
    """Write a row with its like, at a fraction of what an object of the session costs."""
    assert isinstance(session, WriteSession)  # noqa: S101 - `Database.write` gives no other
    session.later[kind].append(row)
