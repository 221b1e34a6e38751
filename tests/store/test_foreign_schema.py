"""The schema of another program in PostgreSQL stays as it is; tables of other names may be beside Paceline's."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, inspect, text

from service.store.sql import schema_upgrade
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import ForeignSchema, SchemaState, revision_of, state_of, upgrade
from tests.databases import postgres_database

pytestmark = pytest.mark.slow


@pytest.fixture
def empty(postgres: str) -> Iterator[Database]:
    with postgres_database(postgres, "template1") as url:
        database = Database(url)
        yield database
        database.close()


def tables_of(database: Database) -> set[str]:
    with database.engine.connect() as connection:
        return set(inspect(connection).get_table_names())


def execute(database: Database, *statements: str) -> None:
    with database.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


@pytest.mark.parametrize("revision", ["bda7b8c39065", "00a1b2c3d4e5", "0001", None])
def test_the_schema_of_another_program_is_not_upgraded(empty: Database, revision: str | None) -> None:
    execute(empty, "create table experiments (experiment_id integer)", "create table runs (run_uuid text)")
    if revision:
        execute(empty, f"create table alembic_version as select '{revision}' as version_num")
    before = tables_of(empty)

    with pytest.raises(ForeignSchema, match=r"belongs to another program: it has the tables .*experiments, runs\. "):
        upgrade(empty)

    assert tables_of(empty) == before


def test_tables_of_other_names_may_be_in_the_same_schema(empty: Database) -> None:
    execute(empty, "create table songs (id integer)")

    upgrade(empty)

    assert tables_of(empty) > {"songs", "experiments", "attempts"}


def test_a_schema_that_another_service_creates_meanwhile_is_not_foreign(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so after this one has seen no revision."""

    def upgraded_afterwards(connection: Connection) -> str | None:
        monkeypatch.setattr(schema_upgrade, "revision_of", revision_of)
        seen = revision_of(connection)
        upgrade(empty)
        return seen

    monkeypatch.setattr(schema_upgrade, "revision_of", upgraded_afterwards)
    with empty.engine.connect() as connection:
        assert state_of(connection) is SchemaState.OLDER
        connection.rollback()
        assert state_of(connection) is SchemaState.CURRENT
