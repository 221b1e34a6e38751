"""Sessions that write what comes with every report, such as events and the newest step, in bulk.

`add_later` and `change_later` cost a fraction of what the ORM's unit of work does. Their writes are pending until the
session flushes. A pending write cannot be read around: the session flushes before each of its statements.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Table, event
from sqlalchemy.orm import DeclarativeBase, ORMExecuteState, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import visitors

from service.store.sql.bulk_write import KEY, Kind, Rows, table_of, write_rows

Cache = TypeVar("Cache")


class ProcessCaches:
    """What this process keeps of a database from one transaction to the next: one object of each type. Thread-safe."""

    def __init__(self) -> None:
        self._caches: dict[type[Any], Any] = {}
        self._lock = Lock()

    def of(self, kind: type[Cache]) -> Cache:
        with self._lock:
            if kind not in self._caches:
                self._caches[kind] = kind()
            return cast(Cache, self._caches[kind])

    def clear(self) -> None:
        with self._lock:
            self._caches.clear()


class WriteSession(Session):
    """What `Database.write` yields. `after_commit` is called once the transaction is committed, and not if it fails."""

    def __init__(self, *arguments: Any, caches: ProcessCaches, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.caches = caches
        self.after_commit: list[Callable[[], None]] = []
        self.added: defaultdict[Kind, Rows] = defaultdict(list)
        self.changed: defaultdict[DeclarativeBase, set[str]] = defaultdict(set)
        self._stale_tables: frozenset[Table] = frozenset()

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        """Write the session's objects first, so that pending rows may refer to them."""
        super().flush(objects)
        if self.changed or self.added:
            changed, self.changed = self.changed, defaultdict(set)
            added, self.added = self.added, defaultdict(list)
            write_rows(super().connection(), _by_columns(changed), list(added.items()))

    def refresh(self, instance: object, *arguments: Any, **options: Any) -> None:
        """Flush first, because SQLAlchemy discards the object's values before it flushes."""
        if self.changed:
            self.flush()
        super().refresh(instance, *arguments, **options)

    def expire(self, instance: object, *arguments: Any, **options: Any) -> None:
        if self.changed:
            self.flush()
        super().expire(instance, *arguments, **options)

    def connection(self, *arguments: Any, **options: Any) -> Connection:
        """Flush first, because statements on the connection itself do not pass `_flush_before_statement`."""
        if self.changed or self.added:
            self.flush()
        return super().connection(*arguments, **options)

    @contextmanager
    def stale_reads(self, *kinds: Kind) -> Iterator[None]:
        """Let statements on these tables alone read around pending and unflushed changes.

        Only for a caller that knows that what it selects does not depend on them.
        """
        before, self._stale_tables = self._stale_tables, frozenset(map(table_of, kinds))
        try:
            with self.no_autoflush:
                yield
        finally:
            self._stale_tables = before

    def reads_pending(self, state: ORMExecuteState) -> bool:
        """Whether the statement uses a table with pending writes, other than those of `stale_reads`."""
        if not self._stale_tables:
            return True
        pending = {table_of(kind) for kind in self.added} | {table_of(type(row)) for row in self.changed}
        return not pending.isdisjoint(_tables_of(state) - self._stale_tables)


@event.listens_for(WriteSession, "do_orm_execute")
def _flush_before_statement(state: ORMExecuteState) -> None:
    """SQLAlchemy's autoflush alone leaves out `get`, statements without ORM entities, and `no_autoflush` blocks."""
    session = cast(WriteSession, state.session)
    if (session.changed or session.added) and session.reads_pending(state):
        session.flush()


@event.listens_for(WriteSession, "before_commit")
def _flush_before_commit(session: Session) -> None:
    """SQLAlchemy flushes only if objects have changed; it does not know of pending rows."""
    session.flush()


def add_later(session: Session, kind: Kind, row: dict[str, Any]) -> None:
    """Insert a row, together with others of its table, when the session flushes. `row` has a value for each column."""
    assert isinstance(session, WriteSession)  # noqa: S101 - `Database.write` yields no other
    session.added[kind].append(row)


def change_later(row: DeclarativeBase, **values: Any) -> None:
    """Update columns of a persistent object, together with other rows of its table, when the session flushes.

    The object has the new values immediately.
    """
    session = instance_state(row).session
    assert isinstance(session, WriteSession)  # noqa: S101 - `Database.write` yields no other
    session.changed[row].update(values)
    vars(row).update(values)  # past the instrumentation: the unit of work would write the columns, too


def _by_columns(changed: Mapping[DeclarativeBase, Iterable[str]]) -> list[tuple[Kind, Rows]]:
    """Group the rows by table and changed columns."""
    groups: defaultdict[tuple[Kind, tuple[str, ...]], Rows] = defaultdict(list)
    for row, columns in changed.items():
        names = tuple(sorted(columns))
        [key] = instance_state(row).identity or ()
        groups[type(row), names].append({KEY: key, **{name: getattr(row, name) for name in names}})
    return [(kind, rows) for (kind, _), rows in groups.items()]


def _tables_of(state: ORMExecuteState) -> set[Table]:
    entities = {cast(Table, mapper.local_table) for mapper in state.all_mappers}
    return entities | {part for part in visitors.iterate(cast(Any, state.statement)) if isinstance(part, Table)}
