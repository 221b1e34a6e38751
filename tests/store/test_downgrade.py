"""`paceline db downgrade` takes the schema back, and refuses to lose data unasked."""

import re

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text

from service.cli.upgraded_database import downgraded
from service.settings import BadSettings, DatabaseAway
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import WouldLoseData, downgrade, newest_revision, revision_of, upgrade
from tests.store.test_schema import OLD_ROWS

GENERATION = """
insert into generations (trial_id, number, params, first_attempt, began_at_event, at)
values ('t-1', 0, '{}', 1, 0, '2026-01-01')
"""


CHECKPOINT = """
insert into checkpoints (trial_id, attempt, sequence, step, uri, at, {column})
values ('t-1', 1, 0, 1, '/1', '2026-01-01', '2026-01-01')
"""


def with_old_rows(database_url: str, *statements: str) -> Database:
    """An upgraded database with rows of an earlier version, some of whose tables it has filled."""
    database = Database(database_url)
    upgrade(database)
    downgrade(database, "0010")
    with database.engine.begin() as connection:
        for statement in (*OLD_ROWS.split(";"), *statements):
            connection.execute(text(statement))
    upgrade(database)
    return database


@pytest.mark.slow
def test_a_downgrade_that_would_lose_generations_is_refused_unless_that_is_asked_for(database_url: str) -> None:
    database = with_old_rows(database_url, GENERATION)
    with pytest.raises(WouldLoseData, match="to 0006 would lose generations"):
        downgrade(database, "0006")
    with database.engine.connect() as connection:
        assert revision_of(connection) == newest_revision()
        assert connection.scalar(text("select count(*) from generations")) == 1
    assert downgrade(database, "0007") == "0007"
    assert downgrade(database, "0006", lose_data=True) == "0006"
    upgrade(database)
    with database.engine.connect() as connection:
        assert connection.scalar(text("select count(*) from trials")) == 1
        assert connection.scalar(text("select count(*) from generations")) == 0
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "revision", "lost"),
    [
        ("update trials set cost = '{}'", "0019", "what trials cost (1 row)"),
        (CHECKPOINT.format(column="pinned_at"), "0020", "pins of checkpoints"),
        (CHECKPOINT.format(column="removed_at"), "0020", "why checkpoints were removed"),
        ("update trials set confirms = 1, seed = 2", "0021", "seeds of confirmations"),
        ("update experiments set rule_choice = '{}'", "0024", "why the service chose a stopping rule"),
    ],
)
def test_a_downgrade_names_what_it_would_lose(database_url: str, statement: str, revision: str, lost: str) -> None:
    database = with_old_rows(database_url)
    with database.engine.begin() as connection:
        connection.execute(text(statement))
    with pytest.raises(WouldLoseData, match=re.escape(f"to {revision} would lose {lost}")):
        downgrade(database, revision)
    database.close()


@pytest.mark.slow
def test_every_revision_can_be_reached_and_left(database_url: str) -> None:
    database = Database(database_url)
    upgrade(database)
    for number in range(int(newest_revision()) - 1, 0, -1):
        assert downgrade(database, f"{number:04}") == f"{number:04}"
    upgrade(database)
    database.close()


@pytest.mark.slow
@pytest.mark.databases("postgresql")
def test_a_downgrade_takes_as_long_as_it_needs_and_is_the_only_change_of_the_schema(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note_then_downgrade(config: Config, revision: str) -> None:
        connection = config.attributes["connection"]
        settings.extend(connection.scalar(text(f"show {name}")) for name in ("statement_timeout", "lock_timeout"))
        settings.append(
            connection.scalar(
                text("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
            )
        )
        downgrade_schema(config, revision)

    settings, downgrade_schema = list[object](), command.downgrade
    monkeypatch.setattr(command, "downgrade", note_then_downgrade)
    monkeypatch.setenv("PACELINE_DATABASE_URL", database_url)
    assert downgraded("0030", lose_data=False) == "0030"
    assert settings == ["0", "0", 1]


@pytest.mark.slow
@pytest.mark.databases("postgresql")
@pytest.mark.parametrize("code", ["57014", "55P03"], ids=["a timeout", "a lock"])
def test_a_database_that_ends_a_statement_is_not_said_to_be_away(
    database_url: str, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def end(config: Config, _revision: str) -> None:
        failing = f"do $$ begin raise exception 'canceling statement' using errcode = '{code}'; end $$"
        config.attributes["connection"].execute(text(failing))

    monkeypatch.setattr(command, "downgrade", end)
    monkeypatch.setenv("PACELINE_DATABASE_URL", database_url)
    with pytest.raises(DatabaseAway, match="has ended the command: canceling statement; nothing was changed"):
        downgraded("0030", lose_data=False)


@pytest.mark.parametrize("revision", ["9999", "head", "-1", "", "0012; drop table trials"])
def test_a_wrong_revision_is_refused_with_those_that_there_are(
    database_url: str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_DATABASE_URL", database_url)
    with pytest.raises(BadSettings, match=r"the revision must be one of 0001, 0002, .*; not"):
        downgraded(revision, lose_data=True)
