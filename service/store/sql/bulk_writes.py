"""Sessions that write what comes with every report, such as events and the newest step, in bulk.

`add_later` and `change_later` cost a fraction of what the ORM's unit of work does. Their writes are pending until the
session flushes. No statement misses a pending write: the session flushes before each of its statements.

A flush writes all rows of a table with one statement; on PostgreSQL, the rows of all tables.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy import cast as as_type
from sqlalchemy.orm import DeclarativeBase, ORMExecuteState, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import visitors

Kind = type[DeclarativeBase]
Rows = list[dict[str, Any]]

KEY = "key"
"""The primary key of a changed row, beside the new values of its columns. No column has this name."""


class WriteSession(Session):
    """What `Database.write` yields. `after_commit` is called once the transaction is committed, and not if it fails."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
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
            _write_rows(super().connection(), _by_columns(changed), list(added.items()))

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
        before, self._stale_tables = self._stale_tables, frozenset(map(_table_of, kinds))
        try:
            with self.no_autoflush:
                yield
        finally:
            self._stale_tables = before

    def reads_pending(self, state: ORMExecuteState) -> bool:
        """Whether the statement uses a table with pending writes, other than those of `stale_reads`."""
        if not self._stale_tables:
            return True
        pending = {_table_of(kind) for kind in self.added} | {_table_of(type(row)) for row in self.changed}
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


def _table_of(kind: Kind) -> Table:
    return cast(Table, kind.__table__)


def _write_rows(
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


@cache
def _update_one(kind: Kind) -> Executable:
    [key] = _table_of(kind).primary_key
    return update(_table_of(kind)).where(key == bindparam(KEY))


@cache
def _insert_one(kind: Kind) -> Executable:
    return insert(_table_of(kind))


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
        written[False, _table_of(kind), names] = {"rows": _json(rows), "keys": [row[KEY] for row in rows]}
    for kind, rows in added:
        written[True, _table_of(kind), tuple(sorted(rows[0]))] = {"rows": _json(rows)}
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
