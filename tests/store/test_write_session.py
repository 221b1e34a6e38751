"""What a session puts off is written once it flushes, and is there for whoever reads in between."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import event, select

from service.store.sql.database import Database
from service.store.sql.write_session import add_later, change_later
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


def test_added_rows_hold_what_they_were_given(database: Database, ids: list[str]) -> None:
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


def test_what_was_changed_last_stands_however_it_was_changed(database: Database, ids: list[str]) -> None:
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


def test_nothing_of_it_is_left_when_the_transaction_fails(database: Database, ids: list[str]) -> None:
    def fail() -> None:
        with database.write() as session:
            change_later(session.get_one(ExperimentRow, ids[0]), event_count=71)
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as session:
        assert session.get_one(ExperimentRow, ids[0]).event_count < 71


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.slow
def test_one_statement_serves_whatever_is_put_off_first(database: Database, ids: list[str]) -> None:
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
