"""Which experiments show the error when MLflow fails at the first one of a pass."""

from collections.abc import Callable
from typing import Any

import pytest

from service.mirror.mlflow_errors import MlflowUnavailable
from service.store.mirrors import mirrors_of
from service.store.sql.database import Database
from tests.mirror.bad_connection import (
    BadConnection,
    no_connection_in_time,
    no_route,
    refused,
    server_error,
    timeout,
    unknown_name,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def waiting(begin_experiment: Callable[..., Any]) -> list[str]:
    """Three experiments, in the mirror's order."""
    return [begin_experiment(f"x-00000000000{one}", name=f"{one} waits").experiment_id for one in "abc"]


def errors_of(database: Database, experiment_ids: list[str]) -> list[str | None]:
    with database.read() as session:
        rows = mirrors_of(session, experiment_ids)
    return [rows[one].error if one in rows else None for one in experiment_ids]


@pytest.mark.parametrize("failure", [server_error, timeout])
def test_a_failure_is_shown_with_the_experiment_that_was_tried(
    mirror: Any,
    waiting: list[str],
    database: Database,
    connection: BadConnection,
    failure: Callable[[], Exception],
) -> None:
    connection.failure = lambda _: failure()
    for tried in (1, 2, 3):
        with pytest.raises(MlflowUnavailable):
            mirror.loop.run_once()
        errors = errors_of(database, waiting)
        assert all("MLflow at" in str(error) for error in errors[:tried])
        assert errors[tried:] == [None] * (3 - tried)


@pytest.mark.parametrize("failure", [refused, unknown_name, no_route, no_connection_in_time])
def test_an_outage_is_shown_with_all_experiments_that_wait(
    mirror: Any,
    waiting: list[str],
    database: Database,
    connection: BadConnection,
    failure: Callable[[], Exception],
) -> None:
    connection.failure = lambda _: failure()
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert all(str(error).startswith("MLflow is not reachable at ") for error in errors_of(database, waiting))
    assert len(connection.calls) == 1
