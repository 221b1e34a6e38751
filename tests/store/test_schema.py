"""The schema is what the migrations make of it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.domain.token_digest import token_digest
from service.errors import Unauthorized
from service.operations.attempts.heartbeat import take_heartbeat
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.settings import Settings
from service.store.checkpoints.checkpoint_deletions import deletions_for
from service.store.sql.database import Database, _set_up_sqlite, database_now
from service.store.sql.schema_upgrade import SchemaState, config, state_of, upgrade
from service.store.tables import AttemptRow, ExperimentRow
from tests.conftest import a_spec
from tests.store.leased_trials import an_assignment
from tests.store.old_rows import OLD_ROWS

pytestmark = pytest.mark.slow

OLD_DELETIONS = """
insert into checkpoint_deletions (id, agent, directory, error, created_at)
values (7, 'here', '/7', 'no such bucket', '2026-01-01'), (9, 'here', '/9', null, '2026-01-01')
"""


def test_the_tables_and_the_migrations_agree(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.check(config(connection))
        assert state_of(connection) is SchemaState.CURRENT
    upgrade(database)
    database.close()


def test_a_trial_cannot_have_two_running_attempts(context: Context) -> None:
    an_assignment(context)
    with context.database.read() as session:
        first = session.query(AttemptRow).one()
    values = {column.name: getattr(first, column.name) for column in AttemptRow.__table__.columns}
    second = AttemptRow(**values | {"id": None, "number": 2, "lease_digest": "another", "request_id": "another"})
    with pytest.raises(IntegrityError), context.database.write() as session:
        session.add(second)


def test_a_population_started_without_max_step_continues_after_the_upgrade(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    upgrade(database)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0008")
        spec = a_spec(early_stopping={"rule": "pbt", "interval": 5, "max_step": None})
        old = text(OLD_ROWS.partition(";")[0].replace("'{}'", ":spec", 1))
        connection.execute(old, {"spec": json.dumps(spec)})
    upgrade(database)
    with database.read() as session:
        rule = spec_of(session.get_one(ExperimentRow, "x-1")).early_stopping
    assert (rule.rule, rule.model_dump()["max_step"]) == ("pbt", 2**53)
    database.close()


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("a user stopped it", "user"),
        ("the experiment ended: max_seconds", "experiment_ended"),
        ("paused at step 3 when the experiment ended: user", "experiment_ended"),
        ("the client that ran it stopped it", None),
    ],
)
def test_the_upgrade_tells_why_trials_were_stopped_that_did_not_run(
    database_url: str, reason: str, cause: str | None
) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0010")
        for statement in OLD_ROWS.split(";"):
            connection.execute(text(statement))
        connection.execute(text("update trials set status = 'stopped', reason = :reason"), {"reason": reason})
    upgrade(database)
    with database.engine.connect() as connection:
        assert connection.execute(text("select stop_cause from trials")).scalar_one() == cause
    database.close()


@pytest.mark.parametrize(("milestone", "pool"), [(3, 2), (9, 0)], ids=["as it reached it", "where there was one"])
def test_the_upgrade_puts_paused_trials_into_their_pools(database_url: str, milestone: int, pool: int) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0010")
        for statement in OLD_ROWS.split(";"):
            connection.execute(text(statement))
        connection.execute(text("update milestones set pool = 2"))
        paused = "update trials set status = 'paused', paused_milestone = :milestone, paused_value = 0.5"
        connection.execute(text(paused), {"milestone": milestone})
    upgrade(database)
    with database.engine.begin() as connection:
        assert connection.scalar(text("select paused_pool from trials")) == pool
    database.close()


def test_running_leases_survive_the_upgrade_that_stores_digests(settings: Settings) -> None:
    database = Database(settings.database_url)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0012")
        for statement in (
            OLD_ROWS.replace("number, pool, value) values", "number, pool, value, change) values")
            .replace("0, 0, 0.5)", "0, 0, 0.5, 1)")
            .replace("'{}'", ":spec", 1)
            .split(";")
        ):
            spec = {"spec": json.dumps(a_spec())} if ":spec" in statement else {}
            connection.execute(text(statement), spec)
    upgrade(database)
    context = Context(settings, database)
    assert take_heartbeat(context, "t-1", "a token").decision == "continue"
    with pytest.raises(Unauthorized):
        take_heartbeat(context, "t-1", token_digest("a token"))
    with database.read() as session:
        assert session.query(AttemptRow).one().lease_digest == token_digest("a token")
    context.close()
    if database.is_sqlite:
        assert b"a token" not in Path(str(database.engine.url.database)).read_bytes()
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0012")
    upgrade(database)
    database.close()


def test_a_database_of_an_earlier_version_keeps_its_rows(tmp_path: Path) -> None:
    """SQLite copies a table to change a constraint; rows that refer to the old table must not be deleted."""
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    with database.engine.begin() as connection:
        command.upgrade(config(connection), "0005")
        for statement in OLD_ROWS.split(";"):
            connection.execute(text(statement))
    upgrade(database)
    with database.engine.begin() as connection:
        assert connection.scalar(text("select count(*) from attempts")) == 1
        assert connection.execute(text("select number, value, change from milestones")).one() == (0, 0.5, 0)
        assert connection.scalar(text("pragma foreign_keys")) == 1
        connection.execute(text("update trials set status = 'paused'"))
        connection.execute(text("delete from experiments"))
        assert connection.scalar(text("select count(*) from attempts")) == 0
        assert connection.scalar(text("select count(*) from milestones")) == 0
    database.close()


def test_the_upgrade_keeps_deletions_and_tries_failed_ones_last(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.downgrade(config(connection), "0034")
        connection.execute(text(OLD_DELETIONS))
    upgrade(database)
    with database.write() as session:
        listed = deletions_for(session, "here", database_now(session))
        assert [row.directory for row in listed] == ["/9", "/7"]
    database.close()


def test_sqlite_syncs_each_commit_to_disk(tmp_path: Path) -> None:
    """In the service: the tests' own engines do not sync."""
    with closing(sqlite3.connect(tmp_path / "paceline.db")) as connection:
        _set_up_sqlite(connection, None)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
