"""The audit finds what is wrong: a run that kept every promise passes, and each promise broken in it is named."""

from dataclasses import replace

import pytest

from tests.chaos.audit import CHECKS, audit
from tests.chaos.audit.attempts import LATE_SECONDS
from tests.chaos.evidence.snapshot import Event, MlflowRun, Snapshot
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import CUT, FROZEN, KILLED, PlannedFault, Target
from tests.chaos.good_run import ID, good_run
from tests.chaos.tampering import (
    Tamper,
    changed,
    in_events,
    in_experiment,
    in_lines,
    in_log,
    in_record,
    in_run,
    in_trial,
    late,
    late_by,
    left_out,
    network_fault,
    other_curve,
    said,
    sized,
    twice_at_once,
    with_point,
    without_step,
)


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
    "two attempts at work at once": (in_lines(late), "s after attempt 2 had begun"),
    "an attempt works on after its end": (
        in_lines(lambda one: late_by(one, LATE_SECONDS + 1, "report")),
        "still worked 6.00 s after its end: 1 lines, first report at step 12 on rank 0",
    ),
    "an attempt saves after its end": (
        in_lines(lambda one: late_by(one, 100, "saving")),
        "still worked 100.00 s after its end: 1 lines, first saving",
    ),
    "an experiment ends with a running attempt": (
        in_events(lambda events: [one for one in events if (one.kind, one.trial) != ("attempt.ended", "t-1")]),
        "still lived",
    ),
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
    "a line is missing in a log": (
        in_log(lambda log: [line for line in log if "line 3." not in line]),
        "the log of rank 0 lacks the lines 3 to 3, without a note",
    ),
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
            faults=[
                replace(
                    one.record.faults[0],
                    planned=PlannedFault(5, Target.AGENT, "killed", 0, 1),
                    name="agent-0",
                    attempt=None,
                )
            ]
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


@pytest.mark.parametrize("is_shown", [True, False])
def test_an_end_that_is_taken_back_gives_the_curve_of_the_best_a_point_without_it(*, is_shown: bool) -> None:
    (experiment,) = good_run().experiments
    best, other = (trial.curve[-1].metrics["loss"] for trial in experiment.trials)
    again = [("trial.queued", 60.0), ("trial.completed", 70.0)]

    def run_again(events: list[Event]) -> list[Event]:
        end = events[-1]
        events = [replace(one, kind="trial.stopped") if one.kind == "trial.pruned" else one for one in events]
        more = [
            replace(end, seq=end.seq + number, kind=kind, trial=experiment.trials[0].id, at=end.at + seconds)
            for number, (kind, seconds) in enumerate(again, 1)
        ]
        return [*events, *more]

    def mirrored(run: MlflowRun) -> MlflowRun:
        taken_back = [(2, other)] if is_shown else []
        return replace(run, curves={"best_loss": [(1, best), (2, best), *taken_back, (3, best)]})

    tampered = in_experiment(parents=lambda one: [mirrored(one.parents[0])])(in_events(run_again)(good_run()))
    assert any("the curve of the best" in one for one in audit(tampered)) is not is_shown


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_stopped_trial_without_reports_that_runs_again_gives_the_curve_a_point(*, is_shown: bool) -> None:
    best = good_run().experiments[0].trials[0].curve[-1].metrics["loss"]

    def stop_twice(events: list[Event]) -> list[Event]:
        end = events[-1]
        kinds = ["trial.stopped", "trial.queued", "trial.stopped"]
        more = [
            replace(end, seq=end.seq + number, kind=kind, trial="silent", at=end.at + number)
            for number, kind in enumerate(kinds, 1)
        ]
        return [*events, *more]

    def mirrored(run: MlflowRun) -> MlflowRun:
        taken_back = [(3, best)] if is_shown else []
        return replace(run, curves={"best_loss": [(1, best), (2, best), (3, best), *taken_back, (4, best)]})

    tampered = in_experiment(parents=lambda one: [mirrored(one.parents[0])])(in_events(stop_twice)(good_run()))
    assert any("the curve of the best" in one for one in audit(tampered)) is not is_shown


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


@pytest.mark.parametrize(
    ("target", "variant", "is_allowed"),
    [(Target.SLOT, FROZEN, True), (Target.SLOT, KILLED, False), (Target.CLIENT, FROZEN, False)],
)
def test_only_what_was_frozen_may_work_on_after_its_end(target: Target, variant: str, *, is_allowed: bool) -> None:
    run = in_lines(lambda one: late_by(one, 100, "reported"))(good_run())
    began = run.experiments[0].trials[0].attempts[-1].started_at
    fault = Fault(PlannedFault(1, target, variant, 0, 0), began, "it", 17)
    run = in_record(faults=[*run.record.faults, fault])(run)
    assert any("after its end" in one for one in audit(run)) is not is_allowed


@pytest.mark.parametrize(("variant", "is_allowed"), [(CUT, True), (KILLED, False)])
def test_an_attempt_that_is_cut_off_may_work_on(variant: str, *, is_allowed: bool) -> None:
    run = in_lines(late)(good_run())
    run = in_record(faults=[*run.record.faults, network_fault(variant, "agent-0")])(run)
    assert any("still worked" in one for one in audit(run)) is not is_allowed


def test_charts_are_missed_only_after_their_directory_was_away() -> None:
    run = good_run()
    away = replace(run.record.faults[0], planned=PlannedFault(5, Target.ARTIFACTS, "away", 0, 1), attempt=None)
    run = in_record(faults=[*run.record.faults, away])(run)
    assert audit(run) == ["pace-0: in MLflow its parent run has no charts"]

    def drawn(size: int) -> Snapshot:
        return in_experiment(parents=lambda one: [replace(one.parents[0], charts={"history.html": size})])(run)

    assert audit(drawn(0)) == ["pace-0: in MLflow the chart history.html is empty"]
    assert audit(drawn(10)) == []


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
