"""A context whose leases do not expire by themselves."""

from collections.abc import Iterator

import pytest

from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database
from tests.conftest import changed
from tests.store.leased_trials import LEASE_SECONDS


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    database = Database(settings.database_url)
    context = Context(changed(settings, lease_seconds=LEASE_SECONDS), database)
    yield context
    context.close()
