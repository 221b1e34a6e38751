"""While a deployment is upgraded, services of two versions work on one database."""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text

from service.cli.upgraded_database import upgraded_database
from service.settings import BadSettings, Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import downgrade, newest_revision, upgrade
from tests.conftest import Api, running
from tests.store.schema_changes import Schema, faults, schema_of

LATER = "9999"
BEFORE_THE_RULE = {"0006", "0011", "0013"}
"""Revisions with which services of the version before do not work. Since then each one only adds."""


def schemas(database: Database) -> dict[str, Schema]:
    """The schemas by revision."""
    upgrade(database)
    found = {newest_revision(): schema_of(database.engine)}
    for number in reversed(range(1, int(newest_revision()))):
        revision = downgrade(database, f"{number:04}", lose_data=True)
        found[revision] = schema_of(database.engine)
    return found


@pytest.mark.slow
def test_services_of_the_version_before_work_with_each_schema_or_it_says_that_they_do_not(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'all.db'}")
    found = schemas(database)
    database.close()
    numbers = range(2, int(newest_revision()) + 1)
    steps = {f"{number:04}": (found[f"{number - 1:04}"], found[f"{number:04}"]) for number in numbers}
    broken = {revision for revision, (before, after) in steps.items() if any(faults(before, after))}
    said = {revision for revision, (before, after) in steps.items() if before.oldest and before.oldest != after.oldest}
    assert broken - said == BEFORE_THE_RULE


DROPPED_FIRST = {"0005", "0006", "0009", "0010", "0011", "0012"}
"""Revisions that drop an index before they create one. Since then each one drops last, in both directions."""


def statements_by_revision(database: Database) -> dict[str, list[str]]:
    """The statements of the upgrades to all revisions, and of the downgrades to the newest of `DROPPED_FIRST`."""
    found: dict[str, list[str]] = {}
    said: list[str] = []

    def note(*arguments: Any) -> None:
        said.append(str(arguments[2]))
        if reached := re.match(r"(?:UPDATE|INSERT INTO) alembic_version .*?'(\d{4})'", said[-1]):
            found[f"down to {reached[1]}" if reached[1] in found else reached[1]] = said.copy()
            said.clear()

    event.listen(database.engine, "before_cursor_execute", note)
    upgrade(database)
    downgrade(database, max(DROPPED_FIRST), lose_data=True)
    return found


@pytest.mark.slow
def test_a_revision_drops_indexes_last(tmp_path: Path) -> None:
    """PostgreSQL locks a table against readers from the drop to the commit, and creating an index takes long."""
    database = Database(f"sqlite:///{tmp_path / 'all.db'}")
    found = statements_by_revision(database)
    database.close()
    assert len(found) == 2 * int(newest_revision()) - int(max(DROPPED_FIRST))
    orders = {revision: re.findall(r"\b(CREATE|DROP) INDEX", "; ".join(said)) for revision, said in found.items()}
    assert {one for one, order in orders.items() if order != sorted(order)} == DROPPED_FIRST


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("drop table one", "one is removed"),
        ("alter table one drop column b", "one.b is removed"),
        ("alter table one add column c integer not null default 1", None),
        ("alter table one add column c integer", None),
        ("create table two (a integer not null)", None),
        ("create index i on one (a)", None),
        ("create unique index i on one (a, b)", "one: a, b must be unique"),
        ("drop table one; create table one (a integer, b text)", "one.a has another type"),
        ("drop table one; create table one (a text, b text not null)", "one.b must be given"),
        ("drop table one; create table one (a text, b text, c text not null)", "one.c is new, and must be given"),
        ("drop table one; create table one (a text, b text, check (a > 1))", "one: there is a new check"),
        ("drop table one; create table one (a text, b text references one (a))", "one: b must refer to a row"),
        ("drop table one; create table one (a text, b text, c text references one (a))", None),
    ],
)
def test_what_hinders_services_of_the_version_before_is_found(change: str, fault: str | None) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("create table one (a text, b text)"))
    before = schema_of(engine)
    with engine.begin() as connection:
        for statement in change.split(";"):
            connection.execute(text(statement))
    assert list(faults(before, schema_of(engine))) == ([] if fault is None else [fault])
    engine.dispose()


def upgraded_by_a_later_version(settings: Settings, oldest: str) -> None:
    database = Database(settings.database_url)
    with database.engine.begin() as connection:
        connection.execute(text("alter table trials add column of_a_later_version integer"))
        connection.execute(text("create table of_a_later_version (a integer)"))
        connection.execute(text("update schema_compatibility set oldest_revision = :oldest"), {"oldest": oldest})
        connection.execute(text("update alembic_version set version_num = :later"), {"later": LATER})
    database.close()


def test_a_service_works_beside_a_later_version_and_restarts(service: Api, settings: Settings) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    upgraded_by_a_later_version(settings, oldest=newest_revision())
    held.report(accuracy=0.5)
    assert service.get("/readyz")["database"] == "ok"
    with upgraded_database(settings):
        pass
    with running(settings) as restarted:
        held.finish()
        assert restarted.ask(name)
        assert restarted.get(f"/v1/experiments/{name}")["counts"]["completed"] == 1


def test_a_service_does_not_start_on_a_schema_that_is_too_new(service: Api, settings: Settings) -> None:
    upgraded_by_a_later_version(settings, oldest=LATER)
    with pytest.raises(BadSettings) as refused, upgraded_database(settings):
        pass
    assert f"works with services from revision {LATER} on" in str(refused.value)
    assert f"paceline db downgrade {newest_revision()}" in str(refused.value)
    assert "later version" in str(service.get("/readyz", 503))
