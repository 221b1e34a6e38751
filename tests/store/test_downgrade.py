"""`paceline db downgrade` takes the schema back, and refuses to lose data unasked."""

import re
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text

from service.cli.upgraded_database import downgraded
from service.settings import BadSettings, DatabaseAway, Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import WouldLoseData, downgrade, newest_revision, revision_of, upgrade
from tests.conftest import Api, Held, running
from tests.store.old_rows import OLD_ROWS

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
        ("update trials set status = 'paused', paused_milestone = 3", "0005", "pauses of trials"),
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


BEST = [{"metric": "loss", "direction": "minimize", "report": "best"}]


def to_earlier_version_and_back(settings: Settings, revision: str, *, lose_data: bool = False) -> None:
    database = Database(settings.database_url)
    try:
        downgrade(database, revision, lose_data=lose_data)
        upgrade(database)
    finally:
        database.close()


def best_of(held: Held) -> tuple[Any, ...]:
    shown = held.shown()
    return shown["value"], shown["best_step"], shown["checkpoint"]["step"], shown["checkpoint"]["value"]


def saved(held: Held, **metrics: Any) -> Any:
    """Reports, and saves a checkpoint. Return the URIs that are kept."""
    return held.report(checkpoint=f"/{held.sequence}", **metrics)["kept"]


def asked(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


@pytest.mark.slow
def test_the_best_report_and_its_checkpoint_survive_a_downgrade(settings: Settings) -> None:
    with running(settings) as service:
        best, newest = (
            asked(service, service.create(objectives=one)["name"]) for one in (BEST, [{**BEST[0], "report": None}])
        )
        for loss in (0.5, 0.1, 0.4, 0.1):
            saved(best, loss=loss)
            saved(newest, loss=loss)
    to_earlier_version_and_back(settings, "0031")
    with running(settings) as service:
        best.api = newest.api = service
        assert (best_of(best), best_of(newest)) == ((0.1, 2, 2, 0.1), (0.1, None, 4, 0.1))
        assert saved(best, loss=0.3) == ["/1", "/4"]
        best.finish()
        assert best_of(best) == (0.1, 2, 2, 0.1)


@pytest.mark.slow
def test_a_value_without_its_step_is_not_replaced_by_a_worse_one(settings: Settings) -> None:
    with running(settings) as service:
        held = asked(service, service.create(objectives=BEST)["name"])
        held.report(loss=0.1)
        with service.app.state.context.database.engine.begin() as connection:
            connection.execute(text("update trials set best_step = null"))
        held.report(loss=0.3)
        assert (held.shown()["value"], held.shown()["best_step"]) == (0.1, 1)


@pytest.mark.slow
def test_a_downgrade_is_refused_if_the_reports_do_not_tell_a_checkpoints_value(settings: Settings) -> None:
    """The first attempt's report of the step counts, and the second one has saved a checkpoint there."""
    with running(settings) as service:
        name = service.create(objectives=BEST, step_metric="epoch", failures={"max_retries": 1})["name"]
        first = asked(service, name)
        first.report(epoch=1, loss=0.5)
        first.fail()
        again = asked(service, name)
        saved(again, epoch=1, loss=0.4)
        assert best_of(again) == (0.5, 1, 1, 0.4)
    with pytest.raises(WouldLoseData, match=re.escape("to 0031 would lose values of checkpoints whose steps")):
        to_earlier_version_and_back(settings, "0031")
    to_earlier_version_and_back(settings, "0031", lose_data=True)
    with running(settings) as service:
        again.api = service
        assert best_of(again) == (0.5, 1, 1, None)


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
