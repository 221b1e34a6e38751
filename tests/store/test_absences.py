"""When a service extends leases because holders may not have reached it: not for what takes one of its loops long."""

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from service.background.lease_extension import LeaseExtension
from service.background.loop import PartlyFailed
from service.operations.attempts.attempt_end import end_as_lost
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.lease_expiry import expire_leases
from service.operations.attempts.leases import LeasedAttempt
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database
from tests.store.lease_loops import LeaseLoops, Seconds, clock_ahead, let_work_take
from tests.store.leased_trials import LEASE_SECONDS, OVER_A_LEASE, an_assignment, let_pass, trial_of

ABSENCE = 0.4 * LEASE_SECONDS
"""Longer than an absence may be for which no lease is extended."""


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def loops(context: Context, clock: Seconds) -> LeaseLoops:
    """The service has started: it no longer extends leases because of that."""
    loops = LeaseLoops(context, clock)
    loops.run_once()
    return loops


def refused(sqlstate_error: type[psycopg.Error], sqlite_errorname: str) -> Callable[[Context], OperationalError]:
    """Return how the database that the test runs on says it."""

    def error(context: Context) -> OperationalError:
        orig: Exception = sqlstate_error()
        if context.database.is_sqlite:
            orig = sqlite3.OperationalError()
            orig.sqlite_errorname = sqlite_errorname
        return OperationalError("update", None, orig)

    return error


cancelled = refused(psycopg.errors.QueryCanceled, "SQLITE_INTERRUPT")
full = refused(psycopg.errors.DiskFull, "SQLITE_FULL")


def test_limits_of_an_experiment_that_take_long_extend_no_lease(
    context: Context, clock: Seconds, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = an_assignment(context), an_assignment(context, limits={"max_seconds": 10_000})

    def take_long(_: object) -> bool:
        let_work_take(ABSENCE, clock, loops)
        return False

    monkeypatch.setattr("service.operations.time_limits.may_run_trials", take_long)
    for _ in range(2):
        let_pass(context, 0.6 * LEASE_SECONDS)
        take_heartbeat(context, other.trial, other.lease.token)
        loops.run_once()
    assert trial_of(context, lost).status == "queued"
    assert trial_of(context, other).status == "running"


@pytest.mark.databases("postgresql")
def test_a_lost_attempt_whose_end_takes_long_and_fails_extends_no_lease(
    context: Context, clock: Seconds, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer, so that no holder could be heard meanwhile."""
    slow, lost = an_assignment(context), an_assignment(context)

    def take_long(leased: LeasedAttempt, message: str, lease_seconds: float) -> None:
        if leased.trial.id == slow.trial:
            let_work_take(ABSENCE, clock, loops)
            raise cancelled(context)
        end_as_lost(leased, message, lease_seconds)

    monkeypatch.setattr("service.operations.attempts.lease_expiry.end_as_lost", take_long)
    let_pass(context, 1.2 * LEASE_SECONDS)
    take_heartbeat(context, lost.trial, lost.lease.token)
    for _ in range(2):
        let_pass(context, 0.6 * LEASE_SECONDS)
        with pytest.raises(PartlyFailed):
            loops.run_once()
    assert trial_of(context, lost).status == "queued"


def test_an_absence_in_the_middle_of_work_that_takes_long_keeps_it_from_all_leases(
    context: Context, clock: Seconds, loops: LeaseLoops
) -> None:
    held = an_assignment(context)
    before = loops.extension.reachability()
    clock.now += ABSENCE
    loops.extension.run_once()
    let_pass(context, OVER_A_LEASE)
    assert expire_leases(context, before) == 0
    assert trial_of(context, held).status == "running"
    assert loops.run_once() == 1


def test_no_lease_runs_out_before_a_service_that_starts_has_extended_it(context: Context) -> None:
    held, loops = an_assignment(context), LeaseLoops(context)
    let_pass(context, OVER_A_LEASE)
    assert loops.expiry.run_once() == 0
    assert loops.run_once() == 0
    assert trial_of(context, held).status == "running"


def test_no_lease_runs_out_before_the_service_notices_that_the_databases_clock_was_set_forward(
    context: Context, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = an_assignment(context)
    for module in ("operations.attempts.leases", "operations.attempts.lease_expiry", "background.lease_extension"):
        monkeypatch.setattr(f"service.{module}.database_now", clock_ahead(timedelta(hours=1)))
    assert loops.expiry.run_once() == 0
    assert loops.run_once() == 0
    assert trial_of(context, held).status == "running"


@pytest.mark.parametrize(("seconds", "ended"), [(0.2 * LEASE_SECONDS, 1), (ABSENCE, 0)])
def test_a_database_that_is_away_for_long_is_an_absence(
    context: Context, clock: Seconds, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch, seconds: float, ended: int
) -> None:
    an_assignment(context)
    let_pass(context, OVER_A_LEASE)

    def fail(_: object) -> Any:
        raise OperationalError("select", None, Exception("no connection"))

    with monkeypatch.context() as away:
        away.setattr("service.background.lease_extension.database_now", fail)
        for _ in range(2):
            with pytest.raises(OperationalError):
                loops.extension.run_once()
            clock.now += seconds / 2
    assert loops.run_once() == ended


WAIT_LITTLE = {"sqlite": "PRAGMA busy_timeout = 100", "postgresql": "SET lock_timeout = 100"}


@pytest.mark.parametrize("table", ["attempts", "trials", "experiments"])
def test_a_table_that_another_process_keeps_locked_for_long_is_an_absence(
    settings: Settings, context: Context, clock: Seconds, table: str
) -> None:
    """As an upgrade of the schema does while services run. SQLite has one lock for all tables."""
    engine, other = context.database.engine, Database(settings.database_url)
    event.listen(engine, "connect", lambda connection, _: _execute(connection, WAIT_LITTLE[engine.dialect.name]))
    loops = LeaseLoops(context, clock)
    loops.run_once()
    held = an_assignment(context)
    let_pass(context, OVER_A_LEASE)
    with other.write() as session:
        session.execute(text("select 1" if other.is_sqlite else f"lock table {table}"))
        clock.now += ABSENCE / 2
        with pytest.raises(OperationalError):
            loops.extension.run_once()
        clock.now += ABSENCE / 2
    other.close()
    assert loops.run_once() == 0
    assert trial_of(context, held).status == "running"


def _execute(connection: Any, statement: str) -> None:
    connection.execute(statement)
    connection.commit()


@pytest.mark.parametrize(("refusal", "ended"), [(cancelled, 1), (full, 0)], ids=["cancelled", "full"])
def test_leases_are_extended_after_the_databases_disk_was_full_and_not_after_a_cancelled_statement(
    context: Context,
    loops: LeaseLoops,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[[Context], OperationalError],
    ended: int,
) -> None:
    """A pass that changes nothing meets no full disk."""
    an_assignment(context)
    let_pass(context, OVER_A_LEASE)

    def fail(*_: object) -> None:
        raise refusal(context)

    with monkeypatch.context() as failing:
        failing.setattr("service.operations.attempts.lease_expiry.end_as_lost", fail)
        with pytest.raises(PartlyFailed):
            loops.run_once()
    assert loops.run_once() == ended


def test_a_full_disk_that_is_noticed_during_a_pass_counts_for_the_next_one(
    context: Context, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_assignment(context)
    let_pass(context, OVER_A_LEASE)

    def notice(_: LeaseExtension, __: float) -> bool:
        loops.extension.doubt()
        return False

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LeaseExtension, "_may_have_missed_heartbeats", notice)
        loops.extension.run_once()
    assert loops.run_once() == 0


@pytest.mark.databases("postgresql")
def test_a_service_that_cannot_announce_itself_extends_no_lease(
    context: Context, clock: Seconds, loops: LeaseLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite there is only one service."""
    an_assignment(context)
    let_pass(context, OVER_A_LEASE)

    def fail(*_: object) -> None:
        raise cancelled(context)

    monkeypatch.setattr("service.background.lease_extension.announce_service", fail)
    for _ in range(5):
        clock.now += ABSENCE / 4
        with pytest.raises(OperationalError):
            loops.extension.run_once()
    assert loops.expiry.run_once() == 1
