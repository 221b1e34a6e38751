"""Limits in time: leases expire, time limits are kept, and a starting service gives every holder a whole lease."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from service.background.loop import PartlyFailed
from service.domain.retry_policy import MAX_LOSSES
from service.errors import AgentNameTaken, LeaseLost
from service.operations.agents.registration import register_agent
from service.operations.attempts import lease_expiry
from service.operations.attempts.attempt_end import end_as_lost
from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.lease_expiry import expire_leases, extend_all_leases
from service.operations.attempts.leases import LeasedAttempt
from service.operations.attempts.scheduling.assignment import Claimant
from service.operations.attempts.scheduling.claim import ask
from service.operations.attempts.scheduling.next_trial import assign
from service.operations.experiments.creation import store_experiment
from service.operations.locked_experiment import LockedExperiment
from service.operations.time_limits import ENDING_SECONDS, enforce_time_limits
from service.runtime.context import Context
from service.settings import without_credentials, without_password
from service.specification.parser import parse_spec
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from tests.conftest import a_spec
from tests.store.calls import take_reports
from tests.store.lease_loops import LeaseLoops, Seconds, clock_ahead
from tests.store.leased_trials import LEASE_SECONDS, OVER_A_LEASE, an_assignment, let_pass, trial_of
from trainer.wire import (
    Assignment,
    Claim,
    Decision,
    Failure,
    FailureKind,
    Finish,
    Heartbeat,
    Instance,
    Outcome,
    Report,
)


def failure_of(context: Context, assignment: Assignment) -> Failure:
    with context.database.read() as session:
        [attempt] = session.query(AttemptRow).filter_by(trial_id=assignment.trial, number=assignment.attempt)
        return Failure.model_validate(attempt.failure)


def test_a_silent_attempt_is_lost_and_its_trial_is_queued_again(context: Context) -> None:
    first = an_assignment(context)
    assert expire_leases(context) == 0
    let_pass(context, OVER_A_LEASE)
    assert expire_leases(context) == 1
    assert trial_of(context, first).status == "queued"
    second = assign(context, first.experiment_id, Claimant("another", "request"))
    assert second
    assert (second.trial, second.attempt) == (first.trial, 2)


def test_a_lost_attempt_can_change_nothing_any_more(context: Context) -> None:
    first = an_assignment(context)
    let_pass(context, OVER_A_LEASE)
    expire_leases(context)
    second = assign(context, first.experiment_id, Claimant("another", "request"))
    assert second
    token = first.lease.token
    with pytest.raises(LeaseLost):
        take_reports(context, first.trial, token, [Report(sequence=0, metrics={"accuracy": 1}, checkpoint="/late")])
    with pytest.raises(LeaseLost):
        take_heartbeat(context, first.trial, token)
    with pytest.raises(LeaseLost):
        finish(context, first.trial, token, Finish(outcome=Outcome.COMPLETED))
    trial = trial_of(context, first)
    assert (trial.status, trial.value) == ("running", None)
    answer = take_reports(context, second.trial, second.lease.token, [Report(sequence=0, metrics={"accuracy": 0.5})])
    assert answer.decision is Decision.CONTINUE


def test_heartbeats_and_reports_keep_the_lease(context: Context) -> None:
    held = an_assignment(context)
    let_pass(context, 0.6 * LEASE_SECONDS)
    take_heartbeat(context, held.trial, held.lease.token)
    let_pass(context, 0.6 * LEASE_SECONDS)
    take_reports(context, held.trial, held.lease.token, [Report(sequence=0, metrics={"accuracy": 0.5})])
    let_pass(context, 0.6 * LEASE_SECONDS)
    assert expire_leases(context) == 0


def test_a_trial_that_is_lost_too_often_fails(context: Context) -> None:
    trial = an_assignment(context)
    held: Assignment | None = trial
    losses = 0
    while held:
        take_heartbeat(context, held.trial, held.lease.token)
        let_pass(context, OVER_A_LEASE)
        losses += expire_leases(context)
        held = assign(context, trial.experiment_id, Claimant("a holder", f"request {losses}"))
        held = held if held and held.trial == trial.trial else None
    assert losses == MAX_LOSSES + 1
    assert trial_of(context, trial).failure_kind == "lost"


@pytest.mark.parametrize("heard", [False, True])
def test_an_attempt_whose_lease_no_slot_extended_has_not_begun(context: Context, heard: bool) -> None:
    held = an_assignment(context)
    if heard:
        take_heartbeat(context, held.trial, held.lease.token)
    let_pass(context, OVER_A_LEASE)
    assert expire_leases(context) == 1
    assert failure_of(context, held).began is heard


def test_an_attempt_of_an_asking_caller_has_begun(context: Context) -> None:
    experiment = store_experiment(context, parse_spec(a_spec()))
    held = ask(context, experiment.id, None)
    assert held
    let_pass(context, OVER_A_LEASE)
    assert expire_leases(context) == 1
    assert failure_of(context, held).began


def test_a_trial_that_saves_checkpoints_between_its_losses_does_not_fail(context: Context) -> None:
    held = an_assignment(context)
    for loss in range(2 * MAX_LOSSES):
        report = Report(sequence=0, metrics={"accuracy": 0.5}, checkpoint=f"/{loss}")
        take_reports(context, held.trial, held.lease.token, [report])
        let_pass(context, OVER_A_LEASE)
        assert expire_leases(context) == 1
        again = assign(context, held.experiment_id, Claimant("a holder", f"request {loss}"))
        assert again
        assert again.resume
        assert (again.trial, again.resume.step) == (held.trial, loss + 1)
        held = again


def test_a_restarted_service_gives_every_holder_a_whole_lease(context: Context) -> None:
    held = an_assignment(context)
    let_pass(context, 1000)
    extend_all_leases(context)
    assert expire_leases(context) == 0
    take_heartbeat(context, held.trial, held.lease.token)
    with context.database.read() as session:
        expires_at = session.query(AttemptRow).one().lease_expires_at
        assert expires_at
        assert expires_at > database_now(session) + timedelta(seconds=LEASE_SECONDS / 2)


def test_a_service_that_was_unreachable_expires_no_lease(context: Context) -> None:
    """The service had no database or was suspended for longer than a lease and than `report_timeout_seconds`."""
    held = an_assignment(context, failures={"report_timeout_seconds": 60})
    seconds = [0.0]
    loop = LeaseLoops(context, clock=lambda: seconds[0])
    loop.run_once()
    let_pass(context, 1000)
    seconds[0] += 1000
    assert loop.run_once() == 0
    take_heartbeat(context, held.trial, held.lease.token)
    assert trial_of(context, held).status == "running"
    let_pass(context, OVER_A_LEASE)
    seconds[0] += 1
    assert loop.run_once() == 1
    assert trial_of(context, held).status == "queued"


def test_a_delayed_pass_expires_no_lease(context: Context) -> None:
    """While the pass waited for the database, so did the holders' calls."""
    held = an_assignment(context, failures={"report_timeout_seconds": 60})
    clock = Seconds()
    loops = LeaseLoops(context, clock)
    loops.run_once()
    let_pass(context, 1000)
    clock.now += 1000
    assert loops.expiry.run_once() + loops.limits.run_once() == 0
    assert loops.run_once() == 0
    take_heartbeat(context, held.trial, held.lease.token)
    assert trial_of(context, held).status == "running"


def test_an_agents_name_is_free_after_a_lease_of_silence_while_the_service_was_reachable(context: Context) -> None:
    """After an outage, a second agent's claim may be the first call of all."""
    seconds = [0.0]
    loop = LeaseLoops(context, clock=lambda: seconds[0])
    loop.run_once()
    first, second = (Claim(request_id="r", nodes=[], instance=Instance(place="p", pid=n, started=1)) for n in (1, 2))
    register_agent(context, "one", first)
    let_pass(context, 1000)
    seconds[0] += 1000
    with pytest.raises(AgentNameTaken):
        register_agent(context, "one", second)
    loop.run_once()
    with pytest.raises(AgentNameTaken):
        register_agent(context, "one", second)
    let_pass(context, OVER_A_LEASE)
    seconds[0] += 1
    assert loop.run_once() == 1
    extend_all_leases(context)
    assert loop.run_once() == 0
    register_agent(context, "one", second)
    with pytest.raises(AgentNameTaken):
        register_agent(context, "one", first)


def test_the_lease_of_an_ended_attempt_is_not_extended(context: Context) -> None:
    held = an_assignment(context)
    let_pass(context, OVER_A_LEASE)
    expire_leases(context)
    extend_all_leases(context)
    with pytest.raises(LeaseLost):
        finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.FAILED, next=True))


def test_no_lease_runs_out_because_the_clock_of_the_database_is_set_forward(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, loop = an_assignment(context), LeaseLoops(context, clock=lambda: 0.0)
    loop.run_once()
    let_pass(context, OVER_A_LEASE)
    ahead = timedelta(seconds=OVER_A_LEASE)
    monkeypatch.setattr("service.background.lease_extension.database_now", clock_ahead(ahead))
    assert loop.run_once() == 0
    assert trial_of(context, held).status == "running"
    let_pass(context, OVER_A_LEASE)
    assert loop.run_once() == 1


def test_leases_and_names_run_out_after_the_clock_of_the_database_is_set_back(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, loop = an_assignment(context), LeaseLoops(context, clock=lambda: 0.0)
    first, second = (Claim(request_id="r", nodes=[], instance=Instance(place="p", pid=n, started=1)) for n in (1, 2))
    register_agent(context, "one", first)
    hour = timedelta(hours=1)
    with monkeypatch.context() as ahead:
        ahead.setattr("service.background.lease_extension.database_now", clock_ahead(hour))
        loop.run_once()
    let_pass(context, -hour.total_seconds())
    assert loop.run_once() == 0
    let_pass(context, 0.9 * LEASE_SECONDS)
    assert loop.run_once() == 0
    let_pass(context, 0.2 * LEASE_SECONDS)
    assert loop.run_once() == 2
    assert trial_of(context, held).status == "queued"
    register_agent(context, "one", second)


def test_leases_are_extended_after_a_first_try_has_failed(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    held, loop = an_assignment(context), LeaseLoops(context)
    loop.run_once()
    let_pass(context, OVER_A_LEASE)
    ahead = timedelta(seconds=OVER_A_LEASE)
    monkeypatch.setattr("service.background.lease_extension.database_now", clock_ahead(ahead))
    with monkeypatch.context() as failing:
        failing.setattr("service.background.lease_extension.extend_all_leases", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loop.run_once()
    assert loop.run_once() == 0
    assert trial_of(context, held).status == "running"


def test_leases_run_out_although_another_piece_of_the_loop_fails(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, loop = an_assignment(context), LeaseLoops(context)
    loop.run_once()

    def fail(*_: object) -> int:
        raise ValueError("no")

    monkeypatch.setattr("service.background.time_limits.enforce_time_limits", fail)
    for seconds in (OVER_A_LEASE / 2, OVER_A_LEASE / 2):
        let_pass(context, seconds)
        with pytest.raises(ExceptionGroup):
            loop.run_once()
    assert trial_of(context, held).status == "queued"


def test_leases_run_out_although_the_statements_for_another_experiment_fail(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, over_time = an_assignment(context), an_assignment(context, limits={"max_trials": 3, "max_seconds": 60})
    loop = LeaseLoops(context, clock=lambda: 0.0)
    loop.run_once()

    def fail(locked: LockedExperiment, _: object) -> None:
        locked.session.execute(insert(ExperimentRow).values(id=over_time.experiment_id, name="twice"))

    monkeypatch.setattr("service.operations.time_limits.advance_experiment", fail)
    for _ in range(2):
        let_pass(context, 0.6 * LEASE_SECONDS)
        take_heartbeat(context, over_time.trial, over_time.lease.token)
        with pytest.raises(PartlyFailed):
            loop.run_once()
    assert trial_of(context, lost).status == "queued"


def test_a_trial_that_reports_nothing_for_too_long_fails(context: Context) -> None:
    held = an_assignment(context, failures={"report_timeout_seconds": 60})
    let_pass(context, 61)
    enforce_time_limits(context)
    trial = trial_of(context, held)
    assert (trial.status, trial.failure_kind) == ("failed", "silent")
    assert re.match(r"no report for (6[1-9]|[7-9]\d|1\d\d) s ", trial.reason or "")


def test_a_holder_that_finds_out_how_its_attempt_has_ended_owes_no_report(context: Context) -> None:
    """It may wait longer for Ray's verdict on a node than `report_timeout_seconds`. A silent one is lost."""
    held = an_assignment(context, failures={"report_timeout_seconds": 10})
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat(is_ending=True))
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat())
    let_pass(context, 11)
    enforce_time_limits(context)
    assert trial_of(context, held).status == "running"
    let_pass(context, OVER_A_LEASE)
    enforce_time_limits(context)
    expire_leases(context)
    assert trial_of(context, held).status == "queued"


def test_a_holder_that_tells_no_end_although_its_attempt_is_ending_is_silent(context: Context) -> None:
    """Such as one that waits for a validation which hangs, since the delivery of the reports before it waits, too."""
    held = an_assignment(context, failures={"report_timeout_seconds": 60})
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat(is_ending=True))
    let_pass(context, ENDING_SECONDS)
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat())
    enforce_time_limits(context)
    assert trial_of(context, held).status == "running"
    let_pass(context, 61)
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat())
    enforce_time_limits(context)
    trial = trial_of(context, held)
    assert (trial.status, trial.failure_kind) == ("failed", "silent")


def test_a_stopped_experiments_lost_trial_is_not_queued_again(context: Context) -> None:
    held = an_assignment(context)
    with context.database.write() as session:
        session.execute(update(TrialRow).values(stop_cause="user", stop_reason="a user stopped it"))
    let_pass(context, OVER_A_LEASE)
    expire_leases(context)
    assert trial_of(context, held).status == "stopped"


def test_a_failure_reported_by_a_lost_holder_is_refused(context: Context) -> None:
    first = an_assignment(context)
    let_pass(context, OVER_A_LEASE)
    expire_leases(context)
    message = Finish(outcome=Outcome.FAILED, error=Failure(kind=FailureKind.LOST, message="late"), next=True)
    with pytest.raises(LeaseLost):
        finish(context, first.trial, first.lease.token, message)


def test_an_error_with_one_attempt_does_not_affect_the_others(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = an_assignment(context), an_assignment(context)
    let_pass(context, OVER_A_LEASE)

    def fail_for_one(leased: LeasedAttempt, message: str, lease_seconds: float) -> None:
        if leased.trial.id == first.trial:
            raise ValueError("a bad row")
        end_as_lost(leased, message, lease_seconds)

    monkeypatch.setattr(lease_expiry, "end_as_lost", fail_for_one)
    with pytest.raises(ExceptionGroup, match="1 of 2 failed"):
        expire_leases(context)
    assert trial_of(context, second).status == "queued"


def test_errors_of_the_database_contain_no_secrets(context: Context) -> None:
    held = an_assignment(context)
    with pytest.raises(IntegrityError) as caught, context.database.write() as session:
        session.execute(insert(AttemptRow).values(lease_digest=held.lease.token, trial_id=held.trial))
    assert held.lease.token not in str(caught.value)
    assert without_password("http://user:secret@mlflow:5000/x") == "http://mlflow:5000/x"
    assert without_password("postgresql://me:Zx/9secret@db/x?password=more") == "postgresql://db/x?password=***"
    shown = "postgresql://db/x?host=/run/pg&sslpassword=***"
    assert without_password("postgresql://db/x?host=/run/pg&sslpassword=a'b") == shown
    assert without_credentials("at http://me:a@mlflow/x?T=b'c&id=d, e=f") == "at http://mlflow/x?T=***&id=*** e=f"
    assert without_password("see http://db:5000/x and a@b") == "see http://db:5000/x and a@b"
