"""A claim passes over experiments that it cannot serve now."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from service.operations.agents.registration import register_agent
from service.operations.attempts.scheduling.assignment import build_assignment
from service.operations.attempts.scheduling.claim import claim
from service.operations.experiments import lifecycle
from service.operations.experiments.creation import store_experiment
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.experiments import lock_experiment
from service.store.sql import database
from service.store.tables import ExperimentRow
from tests.conftest import a_spec
from trainer.wire import Assignment, Claim, Node

BUILD = "service.operations.attempts.scheduling.next_trial.build_assignment"


@pytest.fixture(autouse=True)
def _short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.TIMEOUTS, "lock_timeout", "3s")


@pytest.fixture
def first(context: Context) -> str:
    return an_experiment(context)


@pytest.fixture
def second(context: Context, first: str) -> str:
    return an_experiment(context)


def an_experiment(context: Context) -> str:
    trainer = {"kind": "torch", "entrypoint": "train:train_fn"}
    return store_experiment(context, parse_spec(a_spec(trainer=trainer))).id


def claimed(context: Context, request_id: str) -> str | None:
    node = Node(total={"CPU": 4.0}, free={"CPU": 4.0})
    message = Claim(request_id=request_id, nodes=[node], wait_seconds=0)
    register_agent(context, "here", message)
    assignment = claim(context, "here", message)
    return assignment.experiment_id if isinstance(assignment, Assignment) else None


def failing_for(experiment_id: str, error: Exception) -> Callable[..., Assignment]:
    def build(context: Context, session: Any, experiment: ExperimentRow, *more: Any) -> Assignment:
        if experiment.id == experiment_id:
            raise error
        return build_assignment(context, session, experiment, *more)

    return build


@pytest.mark.slow
@pytest.mark.databases("postgresql")
def test_a_claim_passes_over_a_locked_experiment(context: Context, first: str, second: str) -> None:
    with context.database.write() as session:
        assert lock_experiment(session, first)
        assert claimed(context, "one") == second
    assert claimed(context, "two") == first


def test_a_claim_passes_over_an_experiment_that_fails_and_logs_the_error_once(
    context: Context, first: str, second: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BUILD, failing_for(first, ValueError("a bad row")))
        assert [claimed(context, name) for name in ("one", "two")] == [second, second]
    logged = [record for record in caplog.records if "claims skip" in record.getMessage()]
    assert [record.exc_info and str(record.exc_info[1]) for record in logged] == ["a bad row"]
    assert first in logged[0].getMessage()
    assert claimed(context, "three") == first


def test_an_experiment_that_claims_passed_over_is_forgotten_when_it_is_deleted(
    context: Context, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BUILD, failing_for(first, ValueError("a bad row")))
    assert claimed(context, "one") == second
    assert context.passed_over == {first: ValueError}
    lifecycle.cancel(context, first)
    lifecycle.delete(context, first)
    assert claimed(context, "two") == second
    assert not context.passed_over


def test_a_claim_fails_while_the_database_is_away(
    context: Context, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BUILD, failing_for(first, OperationalError("select", {}, Exception("the server is gone"))))
    with pytest.raises(OperationalError):
        claimed(context, "one")
