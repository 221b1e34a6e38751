"""Attempts that end without their holder, of trials that show a whole training: the service may choose a rule then."""

from collections.abc import Callable

import pytest
from sqlalchemy import select

from service.domain.statuses import StopCause
from service.operations.agents.lost_attempts import end_lost_attempts
from service.operations.attempts.lease_expiry import expire_leases
from service.operations.attempts.reachability import Reachability
from service.operations.early_stopping.recorded_milestones import MAX_LOCKED_EVENTS
from service.operations.time_limits import enforce_time_limits
from service.runtime.context import Context
from service.store.tables import ExperimentRow, TrialRow
from tests.history_reads import Reads, counted_reads
from tests.store.calls import take_reports
from tests.store.leased_trials import OVER_A_LEASE, an_assignment, let_pass, trial_of
from trainer.wire import Assignment, LostAttempt, Report

LENGTH = MAX_LOCKED_EVENTS + 200


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return counted_reads(monkeypatch)


@pytest.fixture
def held(context: Context) -> Assignment:
    """A trial that was killed at its time limit, with many reports. Its holder is silent."""
    limits = {"max_trials": 30, "parallelism": 1}
    held = an_assignment(context, search="auto", limits=limits, failures={"report_timeout_seconds": 10})
    reports = [Report(sequence=at, step=at + 1, metrics={"accuracy": at}) for at in range(LENGTH)]
    take_reports(context, held.trial, held.lease.token, reports)
    with context.database.write() as session:
        trial = session.get_one(TrialRow, held.trial)
        trial.stop_cause, trial.stop_reason, trial.killed = StopCause.MAX_TRIAL_SECONDS, "too long", True
    let_pass(context, OVER_A_LEASE)
    return held


def rule(context: Context) -> str:
    with context.database.read() as session:
        [experiment] = session.scalars(select(ExperimentRow))
        return str(experiment.spec["early_stopping"]["rule"])


def by_agent(context: Context, held: Assignment) -> None:
    end_lost_attempts(context, "a holder", [LostAttempt(trial=held.trial, attempt=held.attempt)])


@pytest.mark.parametrize(
    "end",
    [lambda context, _: expire_leases(context), lambda context, _: enforce_time_limits(context), by_agent],
    ids=["lease", "report timeout", "agent"],
)
def test_the_reports_before_the_choice_are_read_without_the_lock(
    context: Context, held: Assignment, reads: Reads, end: Callable[[Context, Assignment], object]
) -> None:
    end(context, held)
    assert trial_of(context, held).status == "stopped"
    assert rule(context) == "hyperband"
    assert reads.unlocked >= LENGTH
    assert reads.locked < MAX_LOCKED_EVENTS


def test_what_was_read_in_a_pass_that_took_too_long_is_not_read_again(
    context: Context, held: Assignment, reads: Reads
) -> None:
    answers = iter((True, False, True))
    for ended in (0, 1):
        assert expire_leases(context, Reachability(still=lambda _: next(answers))) == ended
    assert trial_of(context, held).status == "stopped"
    assert rule(context) == "hyperband"
    assert reads.unlocked < 2 * LENGTH
    assert reads.locked < MAX_LOCKED_EVENTS
