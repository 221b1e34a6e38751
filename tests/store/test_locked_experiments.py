"""A transaction that holds the lock of one experiment for long does not keep reports from the others."""

import pytest

from service.operations.attempts.scheduling.claim import ask
from service.operations.experiments.create import store_experiment
from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.experiments import lock_experiment
from service.store.sql import database
from tests.conftest import a_spec
from trainer.wire import Answer, Assignment, Report

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.TIMEOUTS, "lock_timeout", "1s")


def held_trial(context: Context) -> Assignment:
    assignment = ask(context, store_experiment(context, parse_spec(a_spec())).name, None)
    assert assignment
    return assignment


@pytest.mark.databases("postgresql")
def test_reports_of_other_experiments_are_stored_beside_those_of_a_locked_one(context: Context) -> None:
    locked, free = held_trial(context), held_trial(context)
    reports = [Report(sequence=0, metrics={"accuracy": 0.5})]
    batches = [ReportBatch(one.trial, one.lease.token, reports) for one in (locked, locked, free)]
    with context.database.write() as session:
        assert lock_experiment(session, locked.experiment_id)
        first, second, other = ingest_reports(context, batches)
    assert isinstance(first, Exception)
    assert isinstance(second, Exception)
    assert isinstance(other, Answer)
    assert all(isinstance(answer, Answer) for answer in ingest_reports(context, batches))
