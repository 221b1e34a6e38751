"""Pending writes are written when the session flushes, and no read of the session misses them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.orm import Session

from service.store.sql.bulk_writes import add_later, change_later
from service.store.sql.database import Database
from service.store.tables import EventRow, ExperimentRow, TokenRow
from tests.conftest import Api

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
DATA = {"b": [1, 2.5, None, "é\n%s :x"], "a": {"big": 2**60}}


@pytest.fixture
def database(service: Api) -> Database:
    found: Database = service.app.state.context.database
    return found


@pytest.fixture
def ids(service: Api) -> list[str]:
    return [service.create()["id"] for _ in range(3)]


def test_added_rows_have_the_given_values(database: Database, ids: list[str]) -> None:
    with database.write() as session:
        for seq, one in enumerate(ids, 100):
            row = {"experiment_id": one, "seq": seq, "kind": "odd", "trial_id": None, "data": DATA, "at": AT}
            add_later(session, EventRow, row)
    with database.read() as session:
        found = session.scalars(select(EventRow).where(EventRow.kind == "odd").order_by(EventRow.seq)).all()
    assert [(row.experiment_id, row.seq, row.trial_id, row.at) for row in found] == [
        (one, seq, None, AT) for seq, one in enumerate(ids, 100)
    ]
    assert all(list(row.data) == list(DATA) and row.data == DATA for row in found)


def test_changes_of_some_columns_leave_the_others_and_other_rows_alone(database: Database, ids: list[str]) -> None:
    first, second, third = ids
    with database.write() as session:
        one, two = session.get_one(ExperimentRow, first), session.get_one(ExperimentRow, second)
        change_later(one, event_count=71)
        change_later(two, event_count=72, ended_at=AT)
        change_later(two, end_detail="100% :done")
        two.priority = 5
        assert two.end_detail == "100% :done"
        assert session.scalar(select(ExperimentRow.event_count).where(ExperimentRow.id == first)) == 71
    with database.read() as session:
        rows = {one: session.get_one(ExperimentRow, one) for one in ids}
    assert [rows[one].event_count for one in ids[:2]] == [71, 72]
    assert [rows[one].priority for one in ids] == [0, 5, 0]
    assert (rows[second].ended_at, rows[second].end_detail) == (AT, "100% :done")
    assert rows[first].ended_at is None
    assert rows[third].event_count < 71


def test_the_last_change_of_a_column_wins_however_it_was_made(database: Database, ids: list[str]) -> None:
    with database.write() as session:
        rows = [session.get_one(ExperimentRow, one) for one in ids]
        change_later(rows[0], event_count=71)
        rows[0].event_count = 72
        rows[1].event_count = 71
        change_later(rows[1], event_count=72)
        change_later(rows[2], event_count=71)
        change_later(rows[2], event_count=72)
    with database.read() as session:
        assert [session.get_one(ExperimentRow, one).event_count for one in ids] == [72, 72, 72]


def test_no_pending_write_is_left_when_the_transaction_fails(database: Database, ids: list[str]) -> None:
    def fail() -> None:
        with database.write() as session:
            change_later(session.get_one(ExperimentRow, ids[0]), event_count=71)
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as session:
        assert session.get_one(ExperimentRow, ids[0]).event_count < 71


def an_event(experiment_id: str) -> dict[str, Any]:
    return {"experiment_id": experiment_id, "seq": 100, "kind": "odd", "trial_id": None, "data": DATA, "at": AT}


def by_get(session: Session, id_: str) -> object:
    return session.get(EventRow, (id_, 100))


def by_select(session: Session, id_: str) -> object:
    return session.scalar(select(EventRow.seq).where(EventRow.experiment_id == id_, EventRow.seq == 100))


def by_text(session: Session, id_: str) -> object:
    return session.scalar(text("select seq from events where experiment_id = :id and seq = 100"), {"id": id_})


def by_connection(session: Session, id_: str) -> object:
    return session.connection().scalar(select(EventRow.seq).where(EventRow.experiment_id == id_, EventRow.seq == 100))


@pytest.mark.parametrize("read", [by_get, by_select, by_text, by_connection])
@pytest.mark.parametrize("autoflush", [True, False])
def test_no_read_misses_a_pending_row(
    database: Database, ids: list[str], read: Callable[[Session, str], object], *, autoflush: bool
) -> None:
    with database.write() as session:
        session.autoflush = autoflush
        add_later(session, EventRow, an_event(ids[0]))
        assert read(session, ids[0]) is not None


@pytest.mark.parametrize("autoflush", [True, False])
def test_a_refresh_keeps_a_pending_change(database: Database, ids: list[str], *, autoflush: bool) -> None:
    with database.write() as session:
        experiment = session.get_one(ExperimentRow, ids[0])
        session.autoflush = autoflush
        change_later(experiment, event_count=71)
        session.refresh(experiment)
        assert experiment.event_count == 71
        change_later(experiment, event_count=72)
        session.expire(experiment)
        assert experiment.event_count == 72


def test_stale_reads_are_limited_to_the_tables_that_are_named(database: Database, ids: list[str]) -> None:
    with database.write() as session:
        experiment = session.get_one(ExperimentRow, ids[0])
        change_later(experiment, event_count=71)
        add_later(session, EventRow, an_event(ids[0]))
        stored = select(ExperimentRow.event_count).where(ExperimentRow.id == ids[0])
        with session.stale_reads(ExperimentRow):
            assert session.scalar(stored) != 71
            assert by_select(session, ids[0]) is not None
        assert session.scalar(stored) == 71


def test_a_read_after_stale_reads_sees_pending_changes(database: Database, ids: list[str]) -> None:
    with database.write() as session:
        change_later(session.get_one(ExperimentRow, ids[0]), event_count=71)
        with session.stale_reads(ExperimentRow):
            pass
        assert session.scalar(select(ExperimentRow.event_count).where(ExperimentRow.id == ids[0])) == 71


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.slow
def test_the_statement_does_not_depend_on_the_order_of_pending_writes(database: Database, ids: list[str]) -> None:
    """PostgreSQL prepares each statement by its text."""
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *facts: statements.append(facts[2]))
    texts = []
    for seq, turn in ((100, 1), (101, -1)):
        statements.clear()
        with database.write() as session:
            happened = {"experiment_id": ids[0], "seq": seq, "kind": "odd", "trial_id": None, "data": DATA, "at": AT}
            token = {"name": f"token {seq}", "role": "reader", "digest": str(seq), "created_at": AT}
            one, two = (session.get_one(ExperimentRow, id_) for id_ in ids[:2])
            for changing, changes in [(one, {"event_count": 71}), (two, {"event_count": 72, "priority": 5})][::turn]:
                change_later(changing, **changes)
            for kind, row in [(EventRow, happened), (TokenRow, token)][::turn]:
                add_later(session, kind, dict([*row.items()][::turn]))
        texts.append([statement for statement in statements if "INSERT" in statement])
    assert len(texts[0]) == 1
    assert texts[0] == texts[1]
