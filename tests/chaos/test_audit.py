"""The audit finds what is wrong: a run that kept every promise passes, and each promise broken in it is named."""

from dataclasses import replace

import pytest

from service.stack.http_checks import AGENT_NAME
from tests.chaos.audit import CHECKS, audit
from tests.chaos.evidence.snapshot import Event, MlflowRun, Snapshot
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import AWAY, CUT, FROZEN, FULL, GUARDIAN, KILLED, WITH_GUARDIAN, PlannedFault, Target
from tests.chaos.good_run import ID, good_run
from tests.chaos.run import Death
from tests.chaos.tampering import (
    Tamper,
    changed,
    in_events,
    in_experiment,
    in_lines,
    in_record,
    in_run,
    in_trial,
    late,
    left_out,
    other_curve,
    said,
    sized,
    twice_at_once,
    with_point,
    without_step,
)
from trainer.wire import Scaling


def test_a_run_that_kept_every_promise_passes() -> None:
    assert audit(good_run()) == []


TAMPERED: dict[str, tuple[Tamper, str]] = {
    "a step is missing": (in_trial(0, curve=lambda one: without_step(one, 5)), "the steps of its curve are"),
    "a step is doubled": (in_trial(0, curve=lambda one: [*one.curve, one.curve[-1]]), "the steps of its curve are"),
    "a value is wrong": (
        in_trial(0, curve=lambda one: [replace(one.curve[0], metrics={"step": 1, "loss": 9}), *one.curve[1:]]),
        "it must be",
    ),
    "the end of a curve is lost": (in_trial(0, curve=lambda one: one.curve[:-1]), "with 11 of 12 steps"),
    "an answered report is lost": (in_trial(1, curve=lambda one: one.curve[:-1]), "its report of step 4 is lost"),
    "a point that no function reported": (
        in_lines(lambda one: left_out(one, "report", 2)),
        "no journal has the report that is its step 2",
    ),
    "the API shows less": (in_trial(0, shown=lambda one: one.shown[:-1]), "the API shows another curve"),
    "a gap in the events": (in_events(lambda events: [*events[:3], *events[4:]]), "follows"),
    "an event is doubled": (in_events(lambda events: [*events, events[-1]]), "are not numbered"),
    "the API has other events": (in_experiment(shown_events=lambda one: one.events[:-1]), "other events than SQL"),
    "a report has no event": (
        in_trial(0, curve=lambda one: [*one.curve[:-1], replace(one.curve[-1], sequence=99)]),
        "do not make up",
    ),
    "a checkpoint has two events": (
        in_events(lambda events: [*events, next(one for one in events if one.kind == "checkpoint")]),
        "has 2 events",
    ),
    "a trial ends twice": (
        in_events(lambda events: [*events, replace(events[-1], kind="trial.failed", trial="t-0")]),
        "moved from completed to failed",
    ),
    "too many at once": (
        in_experiment(spec=lambda one: {**one.spec, "limits": {"max_trials": 2, "parallelism": 0}}),
        "parallelism is 0",
    ),
    "a trial number is missing": (in_experiment(trials=lambda one: one.trials[1:]), "has the trials [1]"),
    "a trial is there twice": (in_experiment(trials=lambda one: [*one.trials, one.trials[1]]), "has the trials"),
    "a trial never ended": (in_trial(1, status=lambda _: "running"), "never ended"),
    "a trial failed": (in_trial(1, status=lambda _: "failed"), "ended as failed"),
    "another end": (in_experiment(end_reason=lambda _: "max_seconds"), "ended as completed (max_seconds)"),
    "params outside of the space": (in_trial(0, params=lambda one: {**one.params, "x": 2.0}), "outside of the space"),
    "a param that must not exist": (in_trial(0, params=lambda one: {**one.params, "bend": 1.0}), "bend is there"),
    "two attempts at once": (
        in_trial(0, attempts=lambda one: [replace(one.attempts[0], ended_at=2000.0), one.attempts[1]]),
        "began before attempt 1 had ended",
    ),
    "two attempts at work at once": (in_lines(late), "still worked"),
    "an attempt that SQL does not know": (
        in_lines(lambda one: [*one.lines, replace(one.lines[-1], attempt=7)]),
        "SQL does not know of it",
    ),
    "an accepted end is another": (
        in_lines(lambda one: [*one.lines, said(one, "finished", why="failed")]),
        "accepted its end as failed, and it has ended as completed",
    ),
    "one key got two attempts": (
        in_lines(lambda one: [*one.lines, said(one, "asked twice", why="two runs")]),
        "one Idempotency-Key got several attempts",
    ),
    "a rank repeats a step": (in_lines(twice_at_once), "reported the steps"),
    "resumed from elsewhere": (
        in_lines(lambda one: [replace(line, step=2) if line.did == "resumed" else line for line in one.lines]),
        "resumed from step 2",
    ),
    "resumed from half a checkpoint": (
        in_lines(lambda one: [replace(line, sound=line.did != "resumed") for line in one.lines]),
        "resumed from a broken checkpoint",
    ),
    "resumed from an unknown checkpoint": (
        in_trial(0, attempts=lambda one: [one.attempts[0], replace(one.attempts[1], resume_step=4)]),
        "the newest known was",
    ),
    "a checkpoint lost a part": (
        in_trial(0, checkpoints=lambda one: [replace(one.checkpoints[0], fault="1 of 2 ranks' parts are in it")]),
        "1 of 2 ranks' parts",
    ),
    "more checkpoints are known than are kept": (
        in_trial(0, checkpoints=lambda one: one.checkpoints * 2),
        "2 of its checkpoints are known, not 1",
    ),
    "checkpoints of earlier attempts are left": (
        in_trial(0, stored=lambda one: ["/1/3", "/2/9", *one.stored]),
        "3 of its checkpoints are left on disk",
    ),
    "a loss without a cause": (in_record(faults=[]), "though nothing that ran it was killed"),
    "a loss without a fault near it": (in_record(faults=[]), "faults, in seconds after its start: none"),
    "a kill of another's worker": (
        lambda one: in_record(faults=[replace(one.record.faults[0], attempt=(ID, 1, 1))])(one),
        "though nothing that ran it was killed",
    ),
    "a service's death loses an attempt": (
        lambda one: in_record(
            faults=[
                replace(one.record.faults[0], planned=PlannedFault(5, Target.SERVICE, "killed", 0, 1), attempt=None)
            ]
        )(one),
        "though nothing that ran it was killed",
    ),
    "an agent's death loses a working attempt": (
        lambda one: in_record(
            faults=[replace(one.record.faults[0], planned=PlannedFault(5, Target.AGENT, "killed", 0, 1), attempt=None)]
        )(one),
        "though nothing that ran it was killed",
    ),
    "failed before its budget was spent": (
        in_trial(1, failure_kind=lambda _: "lost", status=lambda _: "failed"),
        "its budget is",
    ),
    "another cutoff": (in_events(lambda events: changed(events, "decision", cutoff=0.1)), "its decisions must be"),
    "a decision is lost": (in_trial(1, decisions=lambda _: []), "its stored decisions must be"),
    "stopped and went on": (
        in_trial(1, status=lambda _: "completed"),
        "trial 1 is completed, though it was stopped",
    ),
    "a step after the decision counts": (
        in_trial(1, curve=lambda one: [*one.curve, replace(one.curve[-1], step=5)]),
        "its step 5 counts, though it was stopped at step 4",
    ),
    "a report is set aside without a decision": (
        in_trial(0, uncounted=lambda one: [replace(one.curve[-1], step=13)]),
        "its step 13 does not count",
    ),
    "MLflow lacks a cost": (
        in_events(lambda events: changed(events, "trial.completed", cost={"training_seconds": 3.5})),
        "not ['loss', 'made', 'paceline/seconds_training', 'step']",
    ),
    "MLflow has a cost of nothing": (
        in_run(0, lambda run: replace(run, curves={**run.curves, "paceline/gpu_seconds": [(12, 1.0)]})),
        "has the metrics ['loss', 'made', 'paceline/gpu_seconds', 'step']",
    ),
    "MLflow lacks a number of workers": (
        in_events(lambda events: [*events, sized(events[-1], trial=events[1].trial)]),
        "'paceline/world_size', 'step']",
    ),
    "no run in MLflow": (in_trial(0, mirrored=lambda _: []), "has 0 runs"),
    "two runs in MLflow": (in_trial(0, mirrored=lambda one: one.mirrored * 2), "has 2 runs"),
    "a run for nothing": (in_experiment(foreign=lambda one: one.trials[0].mirrored), "stands for no trial"),
    "two parents": (in_experiment(parents=lambda one: one.parents * 2), "there are 2 parent runs"),
    "two experiments in MLflow": (in_experiment(mirror_experiments=lambda _: 2), "there are 2 experiments"),
    "a doubled step in MLflow": (
        in_run(0, lambda run: other_curve(run, "loss", lambda points: with_point(points, points[3]))),
        "another curve of loss",
    ),
    "a gap in MLflow": (
        in_run(0, lambda run: other_curve(run, "loss", lambda points: points[:2] + points[3:])),
        "another curve of loss",
    ),
    "another status in MLflow": (in_run(0, lambda run: replace(run, status="RUNNING")), "is RUNNING"),
    "other params in MLflow": (in_run(0, lambda run: replace(run, params={})), "has the parameters"),
    "a lease still stands": (lambda one: replace(one, active_leases=1), "hold a lease after the end"),
    "a process is left": (lambda one: replace(one, left=["ray::Slot (17)"]), "still running after the end"),
    "a deleted experiment is still there": (
        lambda one: replace(one, undeleted=["a row of x-1"]),
        "of a deleted experiment, a row of x-1 is left",
    ),
    "a second experiment of a submit": (
        lambda one: replace(one, unplanned=["pace-0 again"]),
        "that the load did not submit",
    ),
    "it did not end": (in_record(ended=False), "did not end in time"),
    "the mirror lags": (in_record(quiet=False), "the mirror still lagged"),
    "nothing was tried": (lambda one: replace(one, experiments=[]), "nothing was tried"),
}


@pytest.mark.parametrize(("message", "is_explained"), [("its checkpoints cannot be stored", True), (None, False)])
@pytest.mark.parametrize(("target", "variant"), [(Target.STORAGE, AWAY), (Target.DISK, FULL)])
def test_a_storage_that_is_away_or_full_explains_only_what_could_not_be_stored(
    target: Target, variant: str, message: str | None, *, is_explained: bool
) -> None:
    run = good_run()
    away = replace(run.record.faults[0], planned=PlannedFault(5, target, variant, 0, 1), attempt=None)
    run = in_record(faults=[away], restarted={0: away.at + 1})(run)
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], message=message), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


@pytest.mark.parametrize(("second", "is_allowed"), [("12:00:00.100300", True), ("12:00:00.200000", False)])
def test_mlflow_merges_equal_samples_of_a_millisecond_only(second: str, *, is_allowed: bool) -> None:
    times = ["2026-11-25T12:00:00.100000+00:00", f"2026-11-25T{second}+00:00"]
    samples = [{"at": at, "step": 3, "metrics": {"cpu": 100.0}} for at in times]

    def sampled(events: list[Event]) -> list[Event]:
        last = events[-1]
        of_trial = next(one.trial for one in events if one.kind == "report")
        return [
            *events,
            replace(last, seq=last.seq + 1, kind="attempt.system_metrics", trial=of_trial, data={"samples": samples}),
        ]

    def mirrored(run: MlflowRun) -> MlflowRun:
        return replace(run, curves=run.curves | {"system/cpu": [(3, 100.0)]})

    run = in_run(0, mirrored)(in_events(sampled)(good_run()))
    assert any("another curve of system/cpu" in one for one in audit(run)) is not is_allowed


SILENT = "no heartbeat from agent 'agent-0' for 20 s"


@pytest.mark.parametrize(
    ("variant", "agent", "message", "is_explained"),
    [
        (CUT, "agent-0", SILENT, True),
        (CUT, "agent-0", "its worker died", False),
        (CUT, "agent-1", SILENT, False),
        (KILLED, "agent-0", SILENT, False),
    ],
)
def test_only_a_cut_of_its_own_network_explains_a_silent_holder(
    variant: str, agent: str, message: str, *, is_explained: bool
) -> None:
    run = in_record(faults=[_network_fault(variant, agent)])(good_run())
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], message=message), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


@pytest.mark.parametrize(("variant", "is_allowed"), [(CUT, True), (KILLED, False)])
def test_an_attempt_that_is_cut_off_may_work_on(variant: str, *, is_allowed: bool) -> None:
    run = in_lines(late)(good_run())
    run = in_record(faults=[*run.record.faults, _network_fault(variant, "agent-0")])(run)
    assert any("still worked" in one for one in audit(run)) is not is_allowed


def _network_fault(variant: str, agent: str) -> Fault:
    planned = PlannedFault(1, Target.NETWORK, variant, 0, 0)
    return Fault(planned, good_run().record.faults[0].at, f"network of {agent}", 17)


@pytest.mark.parametrize(
    ("variant", "holder", "is_explained"),
    [
        (KILLED, AGENT_NAME, True),
        (WITH_GUARDIAN, AGENT_NAME, True),
        (GUARDIAN, AGENT_NAME, False),
        (KILLED, "client", False),
    ],
)
def test_a_killed_up_loses_what_ran_below_it_and_a_killed_guardian_nothing(
    variant: str, holder: str, *, is_explained: bool
) -> None:
    fault = replace(good_run().record.faults[0], planned=PlannedFault(5, Target.UP, variant, 0, 1), attempt=None)
    run = in_record(faults=[fault], restarted={0: fault.at + 1})(good_run())
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], holder=holder), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


def test_an_up_that_ended_by_itself_explains_what_ran_below_it() -> None:
    death = Death(good_run().record.faults[0].at, "up", Target.UP)
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], holder=AGENT_NAME), one.attempts[1]])(good_run())
    assert audit(in_record(faults=[], deaths=[death])(run)) == []


@pytest.mark.parametrize(
    ("variant", "seconds", "began", "is_explained"),
    [
        (KILLED, 0.1, False, True),
        (KILLED, 0.1, True, False),
        (KILLED, 5.0, False, False),
        (KILLED, -0.1, True, True),
        (FROZEN, 0.1, False, False),
    ],
)
def test_a_slot_that_was_killed_while_it_asked_for_its_next_attempt_explains_the_loss_of_that(
    variant: str, seconds: float, *, began: bool, is_explained: bool
) -> None:
    run = good_run()
    (experiment,) = run.experiments
    lost = experiment.trials[0].attempts[0]
    planned = PlannedFault(5, Target.SLOT, variant, 0, 1)
    slot = replace(run.record.faults[0], planned=planned, at=lost.started_at - seconds, attempt=None)
    if not began:
        first = (experiment.id, 0, 1)
        run = replace(run, lines=[one for one in run.lines if (one.experiment_id, one.trial, one.attempt) != first])
    found = [one for one in audit(in_record(faults=[slot])(run)) if "was lost though nothing" in one]
    assert (found == []) is is_explained


@pytest.mark.parametrize(
    ("target", "unfrozen", "is_explained"),
    [(Target.SERVICE, -1.0, True), (Target.SERVICE, -5.0, False), (Target.CLIENT, -1.0, False)],
)
def test_a_service_that_was_frozen_may_answer_a_slot_that_was_killed_meanwhile(
    target: Target, unfrozen: float, *, is_explained: bool
) -> None:
    """`unfrozen`: in seconds after the attempt's start. The slot was killed 10 s before it."""
    run = good_run()
    (experiment,) = run.experiments
    began, first = experiment.trials[0].attempts[0].started_at, (experiment.id, 0, 1)
    frozen = Fault(PlannedFault(5, target, FROZEN, 0, 30), began - 30, "service-0", 17, frozen_pids=(17,))
    slot = Fault(PlannedFault(6, Target.SLOT, KILLED, 0, 1), began - 10, "a slot", 18)
    run = replace(run, lines=[one for one in run.lines if (one.experiment_id, one.trial, one.attempt) != first])
    run = in_record(faults=[frozen, slot], restarted={0: began + unfrozen})(run)
    found = [one for one in audit(run) if "was lost though nothing" in one]
    assert (found == []) is is_explained


def test_an_elastic_group_that_is_resized_needs_no_fault() -> None:
    resized = in_trial(0, attempts=lambda one: [replace(one.attempts[0], kind="preempted"), one.attempts[1]])
    run = in_record(faults=[])(resized(good_run()))
    assert any("was preempted though nothing" in one for one in audit(run))
    elastic = {"scaling": Scaling.model_validate({"num_workers": [1, 2]}).model_dump(mode="json")}
    run = in_experiment(spec=lambda one: {**one.spec, "trainer": {**one.spec["trainer"], **elastic}})(run)
    assert audit(run) == []


def test_pictures_are_missed_only_after_their_directory_was_away() -> None:
    run = good_run()
    away = replace(run.record.faults[0], planned=PlannedFault(5, Target.ARTIFACTS, "away", 0, 1), attempt=None)
    run = in_record(faults=[*run.record.faults, away])(run)
    assert audit(run) == ["pace-0: in MLflow its parent run has no pictures"]

    def drawn(size: int) -> Snapshot:
        return in_experiment(parents=lambda one: [replace(one.parents[0], pictures={"history.html": size})])(run)

    assert audit(drawn(0)) == ["pace-0: in MLflow the picture history.html is empty"]
    assert audit(drawn(10)) == []


@pytest.mark.parametrize("target", [Target.SERVICE, Target.AGENT, Target.CLOCK, Target.CLIENT])
def test_what_is_frozen_or_stepped_explains_no_loss_of_a_slot(target: Target) -> None:
    fault = replace(good_run().record.faults[0], planned=PlannedFault(5, target, "frozen", 0, 1), attempt=(ID, 1, 1))
    assert any("nothing that ran it was killed" in one for one in audit(in_record(faults=[fault])(good_run())))


@pytest.mark.parametrize("what", TAMPERED)
def test_a_violation_is_named(what: str) -> None:
    tamper, words = TAMPERED[what]
    violations = audit(tamper(good_run()))
    assert any(words in violation for violation in violations), violations


def test_every_check_is_broken_by_some_test() -> None:
    unbroken = [
        check.__name__
        for check in CHECKS
        if not any(list(check(tamper(good_run()))) for tamper, _ in TAMPERED.values())
    ]
    assert unbroken == []
