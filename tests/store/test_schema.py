"""The schema is what the migrations make of it."""

import pytest
from alembic import command
from sqlalchemy.exc import IntegrityError

from service.operations.context import Context
from service.store.database import Database
from service.store.schema import config, is_current, upgrade
from service.store.tables import AttemptRow
from tests.store.test_rescuing import an_assignment, context

__all__ = ["context"]


def test_the_tables_and_the_migrations_agree(database_url: str) -> None:
    database = Database(database_url)
    with database.engine.begin() as connection:
        command.check(config(connection))
        assert is_current(connection)
    upgrade(database)
    database.close()


def test_a_trial_cannot_have_two_living_attempts(context: Context) -> None:
    an_assignment(context)
    with context.database.read() as session:
        first = session.query(AttemptRow).one()
    values = {column.name: getattr(first, column.name) for column in AttemptRow.__table__.columns}
    second = AttemptRow(**values | {"id": None, "number": 2, "lease_token": "another", "request_id": "another"})
    with pytest.raises(IntegrityError), context.database.write() as session:
        session.add(second)
