"""Limits in time of trials and experiments, and in GPU hours."""

import pytest
from sqlalchemy.orm import Session

from service.domain.statuses import StopCause
from service.errors import WrongState
from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import take_heartbeat
from service.operations.attempts.leases import LeasedAttempt, lock_attempt
from service.operations.attempts.scheduling.claim import ask
from service.operations.experiments.change import change
from service.operations.experiments.creation import store_experiment
from service.operations.experiments.lifecycle import stop
from service.operations.time_limits import enforce_time_limits
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.tables import AttemptRow, ExperimentRow
from tests.conftest import a_spec
from tests.store.calls import take_reports
from tests.store.leased_trials import an_assignment, beat, let_pass, trial_of
from trainer.wire import (
    Answer,
    Assignment,
    Decision,
    Finish,
    Outcome,
    PhaseSeconds,
    Report,
)


def reported(context: Context, held: Assignment) -> Answer:
    return take_reports(context, held.trial, held.lease.token, [Report(sequence=0, metrics={"accuracy": 0.5})])


def test_a_trial_over_its_time_limit_stops_at_a_report(context: Context) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_trial_seconds": 60})
    assert held.max_seconds == 60
    let_pass(context, 61)
    assert enforce_time_limits(context) == 0, "as far as the service knows, its workers still start"
    assert beat(context, held, 10).decision is Decision.CONTINUE
    assert enforce_time_limits(context) == 0
    let_pass(context, 51)
    assert enforce_time_limits(context) == 1
    assert enforce_time_limits(context) == 0
    assert beat(context, held, 61).decision is Decision.CONTINUE
    answer = reported(context, held)
    assert answer.decision is Decision.STOP
    assert "max_trial_seconds is 60" in (answer.reason or "")
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    assert trial_of(context, held).status == "stopped"


def test_a_trial_that_was_asked_to_leave_is_not_locked_again_until_it_is_due_for_a_kill(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = an_assignment(context, limits={"max_trial_seconds": 60, "kill_trial_after_seconds": 90})
    other = an_assignment(context, limits={"max_trial_seconds": 60})
    locked: list[str] = []

    def lock(session: Session, attempt: AttemptRow) -> LeasedAttempt:
        locked.append(attempt.trial_id)
        return lock_attempt(session, attempt)

    monkeypatch.setattr("service.operations.time_limits.lock_attempt", lock)
    for seconds, orders in ((61, {held.trial, other.trial}), (0, set()), (30, {held.trial}), (0, set())):
        for one in (held, other):
            beat(context, one, 0)
        let_pass(context, seconds)
        locked.clear()
        assert enforce_time_limits(context) == len(orders)
        assert set(locked) == orders


def test_a_trial_that_leaves_at_no_report_is_killed_after_a_longer_time(context: Context) -> None:
    limits = {"max_trials": 3, "max_trial_seconds": 60, "kill_trial_after_seconds": 90}
    held = an_assignment(context, limits=limits, failures={"report_timeout_seconds": 70})
    assert (held.kill_after_seconds, held.report_timeout_seconds) == (90, 70)
    assert held.max_log_bytes == context.settings.max_log_bytes
    beat(context, held, 61)
    assert enforce_time_limits(context) == 1
    let_pass(context, 30)
    assert enforce_time_limits(context) == 1
    assert enforce_time_limits(context) == 0
    order = beat(context, held, 91)
    assert order.decision is Decision.KILL
    assert "kill_trial_after_seconds is 90" in (order.reason or "")
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    trial = trial_of(context, held)
    assert (trial.status, trial.reason) == ("stopped", order.reason)


def test_a_trial_that_its_slot_kills_before_the_service_orders_it_says_so(context: Context) -> None:
    limits = {"max_trials": 3, "max_trial_seconds": 60, "kill_trial_after_seconds": 90}
    held = an_assignment(context, limits=limits)
    beat(context, held, 61)
    assert enforce_time_limits(context) == 1
    let_pass(context, 28)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED, phases=PhaseSeconds(training=90.2)))
    trial = trial_of(context, held)
    assert trial.reason == "was killed after 90 s (limits.kill_trial_after_seconds is 90)"


def test_a_trial_that_was_killed_while_it_left_to_pause_resumes_without_an_order_to_end(context: Context) -> None:
    limits = {"max_trials": 3, "max_trial_seconds": 60, "kill_trial_after_seconds": 90}
    rule = {"rule": "asha", "min_step": 1, "promote": True, "reduction_factor": 3}
    held = an_assignment(context, limits=limits, early_stopping=rule)
    beat(context, held, 1)
    assert reported(context, held).decision is Decision.STOP
    assert trial_of(context, held).stop_cause == StopCause.PAUSED
    let_pass(context, 91)
    assert enforce_time_limits(context) == 1
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    trial = trial_of(context, held)
    assert (trial.status, trial.stop_cause, trial.killed) == ("paused", None, False)


def test_a_trial_that_leaves_late_says_how_long_it_ran(context: Context) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_trial_seconds": 60})
    beat(context, held, 61)
    assert enforce_time_limits(context) == 1
    let_pass(context, 20)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    assert trial_of(context, held).reason == "ran for 81 s (limits.max_trial_seconds is 60)"


def test_a_stop_of_the_experiment_does_not_wait_for_the_report_that_a_time_limit_waits_for(context: Context) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_trial_seconds": 60})
    beat(context, held, 61)
    assert enforce_time_limits(context) == 1
    stop(context, held.experiment_id)
    assert take_heartbeat(context, held.trial, held.lease.token).decision is Decision.STOP


def test_a_caller_that_asks_for_a_trial_begins_it_then(context: Context) -> None:
    created = store_experiment(context, parse_spec(a_spec(limits={"max_trial_seconds": 60})))
    held = ask(context, created.name, None)
    assert held is not None
    let_pass(context, 61)
    assert enforce_time_limits(context) == 1
    assert reported(context, held).decision is Decision.STOP


def test_an_experiment_over_its_time_limit_ends(context: Context) -> None:
    held = an_assignment(context, limits={"max_trials": 3, "max_seconds": 60})
    let_pass(context, 61)
    enforce_time_limits(context)
    assert take_heartbeat(context, held.trial, held.lease.token).decision is Decision.STOP
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.STOPPED))
    with context.database.read() as session:
        experiment = session.get_one(ExperimentRow, held.experiment_id)
        assert (experiment.status, experiment.end_reason) == ("completed", "max_seconds")


def test_an_experiment_over_its_gpu_hours_ends_and_goes_on_with_more(context: Context) -> None:
    scaling = {"num_workers": 2, "resources_per_worker": {"GPU": 0.5}}
    trainer = {"kind": "external", "scaling": scaling}
    held = an_assignment(context, trainer=trainer, limits={"max_trials": 9, "parallelism": 2, "max_gpu_hours": 2})
    let_pass(context, 3600)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.COMPLETED))
    first, second = (ask(context, held.experiment_id, None) for _ in range(2))
    assert first
    assert second
    let_pass(context, 1799)
    assert enforce_time_limits(context) == 0
    let_pass(context, 1)
    enforce_time_limits(context)
    for one in (first, second):
        assert take_heartbeat(context, one.trial, one.lease.token).decision is Decision.STOP
        finish(context, one.trial, one.lease.token, Finish(outcome=Outcome.STOPPED))
    with context.database.read() as session:
        experiment = session.get_one(ExperimentRow, held.experiment_id)
        assert (experiment.status, experiment.end_reason) == ("completed", "max_gpu_hours")
        assert experiment.end_detail == "the trials had held GPUs for 2 hours (limits.max_gpu_hours is 2)"
    with pytest.raises(WrongState, match="would end again immediately: max_gpu_hours"):
        change(context, held.experiment_id, {"limits": {"max_gpu_hours": 1.9}})
    assert change(context, held.experiment_id, {"limits": {"max_gpu_hours": 2.1}}).status == "running"
    assert ask(context, held.experiment_id, None)


def test_an_attempt_that_passes_the_gpu_hours_by_its_end_ends_the_experiment(context: Context) -> None:
    scaling = {"num_workers": 1, "use_gpu": True}
    held = an_assignment(
        context, trainer={"kind": "external", "scaling": scaling}, limits={"max_trials": 9, "max_gpu_hours": 1}
    )
    let_pass(context, 3601)
    finish(context, held.trial, held.lease.token, Finish(outcome=Outcome.COMPLETED))
    with context.database.read() as session:
        assert session.get_one(ExperimentRow, held.experiment_id).end_reason == "max_gpu_hours"


def test_an_attempt_that_may_still_wait_for_its_gpus_does_not_count_until_it_begins(context: Context) -> None:
    trainer = {"kind": "torch", "entrypoint": "train:train_fn", "scaling": {"num_workers": 1, "use_gpu": True}}
    held = an_assignment(context, trainer=trainer, limits={"max_trials": 9, "max_gpu_hours": 1})
    let_pass(context, 3601)
    assert enforce_time_limits(context) == 0
    beat(context, held, 10)
    assert enforce_time_limits(context) == 1
    assert take_heartbeat(context, held.trial, held.lease.token).decision is Decision.STOP
