"""Lost attempts of an experiment end although the service applies the limits of another one slowly, or cannot."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text, update

from service.operations.locked_experiment import LockedExperiment
from service.runtime.context import Context
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, ExperimentRow
from tests.conftest import Api, Held
from tests.store.leased_trials import let_pass
from tests.timeouts import wait_until

pytestmark = pytest.mark.slow

LEASE_SECONDS = 3600.0


@pytest.fixture
def context(service: Api) -> Context:
    """The service has started: it no longer extends leases because of that."""
    wait_until(lambda: service.get("/readyz")["loops"]["lease extension"]["succeeded_at"])
    context: Context = service.app.state.context
    return context


@pytest.fixture
def lost(service: Api) -> Held:
    """The trial of a holder that sends nothing, beside an experiment that has no trial, and limits that pass soon."""
    trainer = {"kind": "external", "scaling": {"num_workers": 1, "use_gpu": True}}
    service.create(trainer=trainer, limits={"max_seconds": 60, "max_gpu_hours": 1})
    held = service.ask(service.create()["name"])
    assert held
    return held


def let_leases_expire(context: Context) -> None:
    """Move no times of experiments, since one of them may be locked."""
    with context.database.write() as session:
        session.execute(update(AttemptRow).values(lease_expires_at=database_now(session) - timedelta(seconds=1)))


def is_queued(held: Held) -> Callable[[], bool]:
    return lambda: held.shown()["status"] == "queued"


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, what: str) -> Iterator[threading.Event]:
    """Let a call of `what` return only after the block. The event is set when it has begun."""
    begun, released = threading.Event(), threading.Event()

    def hang(*_: Any) -> float:
        begun.set()
        released.wait()
        return 0.0

    monkeypatch.setattr(f"service.operations.time_limits.{what}", hang)
    try:
        yield begun
    finally:
        released.set()


def test_a_lost_attempt_ends_while_a_limit_of_another_experiment_is_measured(
    context: Context, lost: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hanging(monkeypatch, "gpu_hours") as begun:
        wait_until(begun.is_set)
        let_leases_expire(context)
        wait_until(is_queued(lost))


@pytest.mark.databases("postgresql")
def test_a_lost_attempt_ends_while_a_limit_is_applied_to_another_experiment(
    context: Context, lost: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer, so that no holder could be heard either."""
    with hanging(monkeypatch, "advance_experiment") as begun:
        let_pass(context, 61)
        wait_until(begun.is_set)
        let_leases_expire(context)
        wait_until(is_queued(lost))


def test_a_lost_attempt_ends_although_the_database_cancels_the_limit_of_another_experiment(
    context: Context, lost: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = threading.Semaphore(0)

    def take_too_long(locked: LockedExperiment, _: object) -> None:
        calls.release()
        cancelled(locked)

    monkeypatch.setattr("service.operations.time_limits.advance_experiment", take_too_long)
    for _ in range(2):
        let_pass(context, 0.6 * LEASE_SECONDS)
        for _ in range(2):
            wait_until(lambda: calls.acquire(blocking=False))
    wait_until(is_queued(lost))


def cancelled(locked: LockedExperiment) -> None:
    """Let the database cancel a statement. Raises OperationalError."""
    if locked.session.get_bind().dialect.name == "postgresql":
        locked.session.execute(text("set local statement_timeout = 1"))
        locked.session.execute(text("select pg_sleep(600)"))
    connection: Any = locked.session.connection().connection.driver_connection
    connection.set_progress_handler(lambda: 1, 1)
    try:
        locked.session.execute(select(ExperimentRow))
    finally:
        connection.set_progress_handler(None, 0)
