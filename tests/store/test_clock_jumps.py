"""Limits in time do not count jumps of the database's clock, when it is set or the machine is suspended."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import ExperimentRow
from tests.conftest import changed
from tests.store.lease_loops import LeaseLoops
from tests.store.leased_trials import an_assignment, beat, trial_of
from trainer.wire import Assignment, Decision, Finish, Outcome, Report

pytestmark = pytest.mark.databases("sqlite")

HOUR = 3600.0
OF_TRIALS = {"max_trials": 3, "max_trial_seconds": 600, "kill_trial_after_seconds": 900}


class Clocks:
    """The database's clock and both of the service's machine: one runs on while that is suspended."""

    def __init__(self, context: Context) -> None:
        self.database = datetime(2026, 1, 1, tzinfo=UTC)
        self.since_boot = self.running = 0.0
        event.listen(
            context.database.engine,
            "connect",
            lambda connection, _: connection.create_function("strftime", 2, self._sql),
        )
        context.database.clock_jumps.clock = lambda: self.running
        self._loop = LeaseLoops(context, clock=lambda: self.since_boot)
        self._loop.run_once()

    def pass_time(self, seconds: float) -> None:
        """And let the loop run."""
        self.running += seconds
        self.suspend(seconds)
        self.run_loop()

    def suspend(self, seconds: float) -> None:
        self.since_boot += seconds
        self.set_database(seconds)

    def set_database(self, seconds: float) -> None:
        self.database += timedelta(seconds=seconds)

    def jump(self, how: str) -> None:
        """As the loop sees it."""
        {"suspend": self.suspend, "forward": self.set_database}[how](HOUR)
        self.run_loop()

    def run_loop(self) -> None:
        self._loop.run_once()

    def _sql(self, _format: str, _now: str) -> str:
        return self.database.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    context = Context(changed(settings, lease_seconds=2 * HOUR), Database(settings.database_url))
    yield context
    context.close()


@pytest.fixture
def clocks(context: Context) -> Clocks:
    return Clocks(context)


def end_of(context: Context, held: Assignment) -> tuple[str | None, str | None]:
    with context.database.read() as session:
        experiment = session.get_one(ExperimentRow, held.experiment_id)
        return experiment.end_reason, experiment.end_detail


@pytest.mark.parametrize("how", ["forward", "suspend"])
def test_a_jump_is_no_time_of_an_experiment(context: Context, clocks: Clocks, how: str) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(10)
    clocks.jump(how)
    clocks.pass_time(1780)
    assert end_of(context, held) == (None, None)
    clocks.pass_time(11)
    assert end_of(context, held) == ("max_seconds", "the experiment had run for 1801 s (limits.max_seconds is 1800)")


@pytest.mark.parametrize("how", ["forward", "suspend"])
def test_a_jump_is_no_time_of_a_trial(context: Context, clocks: Clocks, how: str) -> None:
    held = an_assignment(context, limits=OF_TRIALS, failures={"report_timeout_seconds": 2000})
    beat(context, held, 0)
    clocks.pass_time(10)
    clocks.jump(how)
    clocks.pass_time(580)
    assert trial_of(context, held).stop_cause is None
    clocks.pass_time(11)
    assert trial_of(context, held).stop_reason == "ran for 601 s (limits.max_trial_seconds is 600)"
    clocks.pass_time(300)
    order = take_heartbeat(context, held.trial, held.lease.token)
    assert order.decision is Decision.KILL
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    assert trial_of(context, held).reason == "was killed after 901 s (limits.kill_trial_after_seconds is 900)"


@pytest.mark.parametrize("how", ["forward", "suspend"])
def test_a_jump_costs_no_gpu_hours(context: Context, clocks: Clocks, how: str) -> None:
    trainer = {"kind": "external", "scaling": {"num_workers": 1, "use_gpu": True}}
    held = an_assignment(context, trainer=trainer, limits={"max_trials": 9, "max_gpu_hours": 0.5})
    beat(context, held, 0)
    clocks.jump(how)
    clocks.pass_time(900)
    assert end_of(context, held) == (None, None)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.COMPLETED))
    assert end_of(context, held) == (None, None)
    assert (trial_of(context, held).cost or {})["gpu_seconds"] == 900


def test_a_call_just_after_a_jump_does_not_end_the_experiment(context: Context, clocks: Clocks) -> None:
    """The loop has not compared the clocks again yet."""
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.suspend(HOUR)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.COMPLETED))
    assert end_of(context, held) == (None, None)


def test_what_begins_after_a_jump_counts_from_its_beginning(context: Context, clocks: Clocks) -> None:
    clocks.jump("forward")
    clocks.pass_time(1)
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(1801)
    assert end_of(context, held) == ("max_seconds", "the experiment had run for 1801 s (limits.max_seconds is 1800)")


def test_a_clock_that_was_set_back_delays_no_limit_of_what_ran_longer(context: Context, clocks: Clocks) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 2 * HOUR})
    clocks.pass_time(1.5 * HOUR)
    clocks.set_database(-HOUR)
    clocks.run_loop()
    clocks.pass_time(0.5 * HOUR)
    assert end_of(context, held) == ("max_seconds", "the experiment had run for 7200 s (limits.max_seconds is 7200)")


def test_a_limit_passes_while_the_clock_that_was_set_back_shows_a_time_before_the_start(
    context: Context, clocks: Clocks
) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(60)
    clocks.set_database(-HOUR)
    clocks.run_loop()
    later = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(1740)
    assert end_of(context, held) == ("max_seconds", "the experiment had run for 1800 s (limits.max_seconds is 1800)")
    assert end_of(context, later) == (None, None)


def test_a_clock_that_is_corrected_leaves_the_limits_as_they_were(context: Context, clocks: Clocks) -> None:
    first = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(600)
    clocks.jump("forward")
    clocks.pass_time(1)
    second = an_assignment(context, limits={"max_trials": 3, "max_seconds": 1800})
    clocks.pass_time(599)
    clocks.set_database(-HOUR)
    clocks.run_loop()
    clocks.pass_time(599)
    assert [end_of(context, held)[0] for held in (first, second)] == [None, None]
    clocks.pass_time(1)
    assert [end_of(context, held)[0] for held in (first, second)] == ["max_seconds", None]
    clocks.pass_time(601)
    assert end_of(context, second)[1] == "the experiment had run for 1800 s (limits.max_seconds is 1800)"


def test_a_report_after_the_clock_was_set_back_counts(context: Context, clocks: Clocks) -> None:
    held = an_assignment(context, failures={"report_timeout_seconds": 900})
    clocks.pass_time(600)
    clocks.set_database(-HOUR)
    clocks.run_loop()
    clocks.pass_time(600)
    ingest_reports(context, [ReportBatch(held.trial, held.lease.token, [Report(sequence=0, metrics={"accuracy": 1})])])
    clocks.pass_time(800)
    assert trial_of(context, held).status == "running"
    clocks.pass_time(101)
    assert trial_of(context, held).status != "running"


def test_what_begins_after_a_wrong_clock_was_corrected_has_its_time(context: Context, clocks: Clocks) -> None:
    clocks.jump("forward")
    clocks.pass_time(300)
    clocks.set_database(-HOUR)
    clocks.run_loop()
    held = an_assignment(context, limits=OF_TRIALS)
    beat(context, held, 0)
    clocks.pass_time(601)
    assert trial_of(context, held).stop_reason == "ran for 601 s (limits.max_trial_seconds is 600)"


def test_a_transaction_that_read_the_time_before_the_clock_was_set_back_counts_no_step(
    context: Context, clocks: Clocks
) -> None:
    began = clocks.database
    clocks.pass_time(2 * HOUR)
    now = clocks.database
    clocks.set_database(-HOUR)
    clocks.run_loop()
    assert context.database.clock_jumps.elapsed_seconds(began, now) == 2 * HOUR
