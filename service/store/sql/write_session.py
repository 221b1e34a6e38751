"""Sessions that write what comes with every report, such as events and the newest step, many rows at a time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import DeclarativeBase, Session, object_mapper, object_session

from service.store.sql.bulk_write import Changes, Kind, Rows, write_rows


class WriteSession(Session):
    """What `Database.write` gives. What is put off until later is written when it flushes, after its objects."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.added: defaultdict[Kind, Rows] = defaultdict(list)
        self.changed: defaultdict[DeclarativeBase, set[str]] = defaultdict(set)

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        super().flush(objects)
        if self.changed or self.added:
            changed, self.changed = self.changed, defaultdict(set)
            added, self.added = self.added, defaultdict(list)
            write_rows(self.connection(), _alike(changed), list(added.items()))


def _alike(changed: Mapping[DeclarativeBase, Iterable[str]]) -> list[tuple[Kind, Changes]]:
    """The rows that change in the same columns together."""
    alike: defaultdict[tuple[Kind, tuple[str, ...]], Changes] = defaultdict(dict)
    for row, changing in changed.items():
        names = tuple(sorted(changing))
        [key] = object_mapper(row).primary_key_from_instance(row)
        alike[type(row), names][key] = {name: getattr(row, name) for name in names}
    return [(kind, rows) for (kind, _), rows in alike.items()]


def add_later(session: Session, kind: Kind, row: dict[str, Any]) -> None:
    """Write a row with its like, at a fraction of what an object of the session costs."""
    _writing(session).added[kind].append(row)


def change_later(row: DeclarativeBase, **values: Any) -> None:
    """Change an object of the session; what its columns hold by then is written with those of its like."""
    _writing(object_session(row)).changed[row].update(values)
    vars(row).update(values)  # what the session takes for loaded, and would not write itself


def _writing(session: Session | None) -> WriteSession:
    assert isinstance(session, WriteSession)  # noqa: S101 - `Database.write` gives no other
    return session
