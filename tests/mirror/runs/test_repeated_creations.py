"""Experiments and runs are created once, though many calls fail, before or after MLflow has executed them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from mlflow.entities import ViewType

from service.background.mirroring import MirrorFailed, Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.store import mirrors
from service.store.sql.database import Database
from tests.mirror.bad_connection import BadConnection, Call, at, failing_often, server_error

pytestmark = pytest.mark.slow
NEW_EXPERIMENTS, NEW_TRIALS = 12, 12


def passes_until_mirrored(mirror: Any, database: Database, most: int) -> int:
    """Between two passes there is enough time for every rest to end."""
    passed = [0.0]
    mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=lambda: sum(passed))
    for number in range(1, most + 1):
        try:
            mirror.loop.run_once()
        except (MlflowUnavailable, MirrorFailed):
            passed.append(60)
        with database.read() as session:
            if mirrors.lag(session) == 0:
                return number
    pytest.fail("the mirror makes too little progress")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_new_experiments_and_runs_are_created_once_within_a_few_passes(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, connection: BadConnection, seed: int
) -> None:
    """45 % of the calls fail: half of these before MLflow gets them, half after it has executed them."""
    ids = [f"x-{seed:08x}{number:04x}" for number in range(NEW_EXPERIMENTS)]
    histories = [begin_experiment(one, name=f"many {one}") for one in ids]
    for number in range(NEW_TRIALS):
        histories[0].completed_trial(number, 0.5)
    connection.failure, connection.lost_answer = failing_often(0.225, seed), failing_often(0.29, seed + 100)

    passes_until_mirrored(mirror, database, most=NEW_EXPERIMENTS)

    connection.failure = connection.lost_answer = lambda _: None
    found = mirror.client.search_experiments(view_type=ViewType.ALL, filter_string=f"name LIKE 'many x-{seed:08x}%'")
    assert sorted(one.name for one in found) == [one.name for one in histories]
    runs = mirror.client.search_runs([one.experiment_id for one in found], run_view_type=ViewType.ALL)
    expected = [*(one.name for one in histories), *(f"trial {number:02d}" for number in range(NEW_TRIALS))]
    assert Counter(run.info.run_name for run in runs) == Counter(expected)


@pytest.mark.parametrize("path", ["experiments/create", "runs/create"])
def test_what_a_failed_creation_has_created_is_found(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, path: str
) -> None:
    begin_experiment()
    connection.lost_answer = at(path)

    mirror.catch_up()

    assert connection.calls.count(path) == 1


def test_a_name_that_a_late_creation_takes_is_looked_up_again(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    """MLflow executes the first creation after the mirror has looked for what it has created."""
    history = begin_experiment()
    failed: list[Call] = []

    def failure(call: Call) -> Exception | None:
        if call.path != "experiments/create":
            return None
        if not failed:
            failed.append(call)
            return server_error()
        connection.failure = lambda _: None
        tags = {one["key"]: one["value"] for one in failed[0].body["tags"]}
        mirror.client.create_experiment(failed[0].body["name"], tags=tags)
        return None

    connection.failure = failure

    mirror.catch_up()

    assert set(mirror.runs(history.name)) == {history.name}
    assert connection.calls.count("experiments/create") == 3
