"""The wait for the mirror before an experiment is deleted: how often it asks, not how long it takes."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from service.api.experiments import mirror_wait
from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.stack.ports import free_port
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import MirrorRow

pytestmark = pytest.mark.slow


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, mirror: Any) -> list[float]:
    """The pauses between two polls. In each of them the loop runs once."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        pass_once(mirror)

    monkeypatch.setattr(mirror_wait, "asyncio", SimpleNamespace(sleep=sleep))
    return waits


def pass_once(mirror: Any) -> None:
    with suppress(MlflowUnavailable):
        mirror.loop.run_once()


def wait(database: Database, history: Any) -> None:
    settings = SimpleNamespace(mlflow_uri="http://mlflow.example")
    context: Any = SimpleNamespace(settings=settings, stopping=threading.Event(), database=database)
    asyncio.run(mirror_wait.wait_for_mirror(context, history.name))


def test_while_mlflow_is_away_the_deletion_of_no_experiment_waits_long(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, waits: list[float]
) -> None:
    mirror.loop = Mirroring(database, f"http://127.0.0.1:{free_port()}")
    histories = [begin_experiment(f"x-00000000000{one}", name=one) for one in "abc"]
    for history in histories:
        history.finish("completed", "max_trials")
    for number, history in enumerate(reversed(histories), start=1):
        wait(database, history)

        assert len(waits) == number


def test_an_error_from_before_does_not_end_the_wait(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, waits: list[float]
) -> None:
    """MLflow is back."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    history.finish("completed", "max_trials")
    with database.write() as session:
        mirrors.fail(session, history.experiment_id, "MLflow does not answer")

    wait(database, history)

    assert len(waits) == 1
    assert mirror.runs(history.name)["trial 00"].info.status == "FINISHED"


def test_an_experiment_at_which_mlflow_fails_is_the_last_of_the_next_pass(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    """So that it does not keep the others from MLflow."""
    mirror.loop = Mirroring(database, f"http://127.0.0.1:{free_port()}")
    ids = [begin_experiment(f"x-00000000000{one}", name=one).experiment_id for one in "abc"]
    for expected in (ids, [*ids[1:], ids[0]], [ids[2], *ids[:2]]):
        with database.read() as session:
            assert mirrors.experiments_behind(session) == expected
        pass_once(mirror)
    with database.read() as session:
        errors = [session.get_one(MirrorRow, one).error for one in ids]
    assert ["connection refused" in str(error) for error in errors] == [True] * 3
