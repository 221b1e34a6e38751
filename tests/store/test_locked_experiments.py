"""A transaction that holds the lock of one experiment for long does not affect the others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.domain.statuses import StopCause
from service.errors import ServiceError
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.lease_expiry import expire_leases
from service.operations.attempts.leases import LeasedAttempt, lock_leased_attempts
from service.operations.attempts.scheduling.claim import ask
from service.operations.experiments.creation import store_experiment
from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.experiments import lock_experiment
from service.store.sql import database
from tests.conftest import a_spec
from tests.store.lease_loops import LeaseLoops
from tests.store.leased_trials import LEASE_SECONDS, an_assignment, let_pass, trial_of
from trainer.wire import Answer, Assignment, Decision, Heartbeat, Report, SystemSample

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.TIMEOUTS, "lock_timeout", "1s")


@pytest.fixture
def _endless_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that waits for a lock as usual fails by another timeout, which is no refused lock."""
    for timeout, value in {"lock_timeout": "0", "statement_timeout": "3s"}.items():
        monkeypatch.setitem(database.TIMEOUTS, timeout, value)


def held_trial(context: Context) -> Assignment:
    assignment = ask(context, store_experiment(context, parse_spec(a_spec())).name, None)
    assert assignment
    return assignment


@contextmanager
def locked(context: Context, experiment_id: str) -> Iterator[None]:
    with context.database.write() as session:
        assert lock_experiment(session, experiment_id)
        yield


@pytest.mark.databases("postgresql")
def test_reports_of_other_experiments_are_stored_beside_those_of_a_locked_one(context: Context) -> None:
    kept, free = held_trial(context), held_trial(context)
    reports = [Report(sequence=0, metrics={"accuracy": 0.5})]
    batches = [ReportBatch(one.trial, one.lease.token, reports) for one in (kept, kept, free)]
    with locked(context, kept.experiment_id):
        first, second, other = ingest_reports(context, batches)
    assert isinstance(first, Exception)
    assert isinstance(second, Exception)
    assert isinstance(other, Answer)
    assert all(isinstance(answer, Answer) for answer in ingest_reports(context, batches))


@pytest.mark.usefixtures("_endless_lock_timeout")
@pytest.mark.databases("postgresql")
def test_reports_wait_little_and_once_for_a_locked_experiment(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[list[str]] = []

    def lock(session: Session, wanted: Sequence[tuple[str, str | None]]) -> list[LeasedAttempt | ServiceError]:
        tries.append([trial for trial, _ in wanted])
        return lock_leased_attempts(session, wanted)

    monkeypatch.setattr("service.operations.reports.ingest.lock_leased_attempts", lock)
    kept, free = held_trial(context), held_trial(context)
    reports = [Report(sequence=0, metrics={"accuracy": 0.5})]
    held = [kept, kept, free, kept]
    batches = [ReportBatch(one.trial, one.lease.token, reports) for one in held]
    with locked(context, kept.experiment_id):
        answers = ingest_reports(context, batches)
    assert [isinstance(answer, Answer) for answer in answers] == [False, False, True, False]
    assert tries == [[one.trial for one in held], [kept.trial] * 3, [free.trial]]


@pytest.mark.usefixtures("_endless_lock_timeout")
@pytest.mark.databases("postgresql")
def test_a_heartbeat_extends_the_lease_although_its_experiment_is_locked(context: Context) -> None:
    kept = held_trial(context)
    let_pass(context, 0.9 * LEASE_SECONDS)
    with locked(context, kept.experiment_id):
        assert take_heartbeat(context, kept.trial, kept.lease.token).decision is Decision.CONTINUE
    let_pass(context, 0.9 * LEASE_SECONDS)
    sample = SystemSample(sequence=0, age_seconds=0, metrics={"cpu_utilization_percentage": 1})
    with locked(context, kept.experiment_id), pytest.raises(DBAPIError):  # else its holder would not send it again
        take_heartbeat(context, kept.trial, kept.lease.token, Heartbeat(system_metrics=[sample]))
    let_pass(context, 0.9 * LEASE_SECONDS)
    assert expire_leases(context) == 0


@pytest.mark.databases("postgresql")
def test_leases_of_other_experiments_run_out_while_a_locked_one_is_over_its_time_limit(context: Context) -> None:
    over_time = an_assignment(context, limits={"max_trials": 3, "max_seconds": 60})
    lost = an_assignment(context)
    loop = LeaseLoops(context, clock=lambda: 0.0)
    loop.run_once()
    for _ in range(2):
        let_pass(context, 0.6 * LEASE_SECONDS)
        with locked(context, over_time.experiment_id), suppress(ExceptionGroup):
            loop.run_once()
    assert trial_of(context, lost).status == "queued"
    loop.run_once()
    assert trial_of(context, over_time).stop_cause == StopCause.EXPERIMENT_ENDED


@pytest.mark.databases("postgresql")
def test_a_pass_waits_once_for_an_experiment_with_many_lost_attempts(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    kept, free = an_assignment(context), an_assignment(context)
    ask(context, kept.experiment_id, None)
    let_pass(context, 1.1 * LEASE_SECONDS)
    with locked(context, kept.experiment_id), caplog.at_level("INFO"):
        assert expire_leases(context) == 1
    assert trial_of(context, free).status == "queued"
    assert [one.getMessage() for one in caplog.records if "locked" in one.getMessage()] == [
        f"{kept.experiment_id} is locked by another transaction; the next pass tries it again"
    ]
    assert expire_leases(context) == 0, "their holders may have been refused meanwhile, and get a whole lease"
    let_pass(context, 1.1 * LEASE_SECONDS)
    assert expire_leases(context) == 2
