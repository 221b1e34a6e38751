"""The projection of events to MLflow's writes, without an MLflow server."""

from datetime import timedelta
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.visualization._hypervolume_history import _get_hypervolume_history_info

from service.mirror.backoff import Backoff
from service.mirror.runs.new_runs import trial_run
from service.mirror.runs.pareto_front import ParetoFront
from service.mirror.runs.projection import BestSoFar, ProjectionInput, RunKey, project
from service.mirror.runs.run_update import DESCRIPTION, MetricPoint
from service.store.tables import EventRow
from tests.mirror.projected_rows import BEST, START, event, experiment, trial


def test_a_queued_trial_has_no_run_yet() -> None:
    projection = project(ProjectionInput(experiment(), {"t-0": trial()}), [event(1, "trial.created", number=0)])
    assert projection.runs == {}


def test_a_trial_stopped_before_it_ran_has_a_run_without_length() -> None:
    projection = project(
        ProjectionInput(experiment(), {"t-0": trial()}), [event(5, "trial.stopped", reason="stopped by a user")]
    )
    update = projection.runs[RunKey("t-0")]
    then = START + timedelta(seconds=5)
    assert (update.status, update.started_at, update.ended_at) == ("KILLED", then, then)
    assert update.tags[DESCRIPTION] == "stopped: stopped by a user"


def test_a_run_says_when_the_last_checkpoint_of_its_trial_is_removed() -> None:
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(2, "checkpoint", uri="/c/1", step=1),
        event(3, "checkpoint.removed", uri="/c/0", step=0, why="checkpoints.keep is 1", left_count=1),
    ]
    data = ProjectionInput(experiment(), {"t-0": trial()})
    assert project(data, events).runs[RunKey("t-0")].tags["paceline.checkpoint"] == "/c/1"
    events.append(event(4, "checkpoint.removed", uri="/c/1", step=1, why="not among the best 1", left_count=0))
    tags = project(data, events).runs[RunKey("t-0")].tags
    assert (tags["paceline.checkpoint"], tags["paceline.checkpoint_removed"]) == ("removed", "not among the best 1")


def test_a_run_that_goes_on_loses_the_failure_of_the_attempt_before() -> None:
    lost = event(2, "attempt.ended")
    lost.data = {"attempt": 1, "kind": "lost", "message": "its node is gone"}
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        lost,
        event(3, "trial.queued", reason="its node is gone"),
        event(4, "trial.running", attempt=2, agent="here"),
        event(5, "trial.completed", step=9),
    ]
    tags = project(ProjectionInput(experiment(), {"t-0": trial()}), events).runs[RunKey("t-0")].tags
    names = ("paceline.reason", "paceline.failure.kind", "paceline.failure.message")
    assert [tags[name] for name in names] == ["", "", ""]


def test_a_trial_that_failed_by_its_values_has_the_kind_of_its_failure() -> None:
    """Its attempt has only stopped."""
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(2, "attempt.ended", attempt=1, outcome="stopped"),
        event(3, "trial.failed", step=3, reason="diverged: loss is NaN"),
    ]
    events[-1].data["kind"] = "diverged"
    tags = project(ProjectionInput(experiment(), {"t-0": trial()}), events).runs[RunKey("t-0")].tags
    assert (tags["paceline.failure.kind"], tags["paceline.failure.message"]) == ("diverged", "diverged: loss is NaN")


def test_a_decision_without_a_cutoff_does_not_keep_that_of_the_one_before() -> None:
    events = [
        event(1, "decision", decision="continue", rule="asha", milestone=1, value=0.4, cutoff=0.5),
        event(2, "decision", decision="pause", rule="asha", milestone=3, value=0.3, cutoff=None),
    ]
    tags = project(ProjectionInput(experiment(), {"t-0": trial()}), events).runs[RunKey("t-0")].tags
    assert (tags["paceline.decision.rung"], tags["paceline.decision.cutoff"]) == ("3", "none")


def test_a_paused_trial_has_a_scheduled_run() -> None:
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(2, "trial.paused", number=0, milestone=3, step=4, reason="0.1 is below 0.5; it is paused there"),
    ]
    projection = project(ProjectionInput(experiment(), {"t-0": trial()}, counts={"paused": 1}), events)
    update = projection.runs[RunKey("t-0")]
    assert (update.status, update.ended_at) == ("SCHEDULED", None)
    assert (update.tags["paceline.status"], update.tags["paceline.last_step"]) == ("paused", "4")
    assert update.tags[DESCRIPTION] == "paused at step 3: 0.1 is below 0.5; it is paused there"
    assert projection.parent.tags["paceline.trials"] == "1 paused"


def test_a_pruned_trial_is_never_the_best() -> None:
    trials = {"t-0": trial(0), "t-1": trial(1)}
    ends = [
        event(1, "trial.completed", "t-0", number=0, values=[0.5]),
        event(2, "trial.pruned", "t-1", number=1, values=[0.1]),
    ]
    projection = project(ProjectionInput(experiment(), trials), ends)
    assert [(point.step, point.value) for point in projection.parent.metrics] == [(1, 0.5), (2, 0.5)]


def test_the_cost_of_a_trial_so_far_is_in_its_run_as_metrics() -> None:
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(2, "attempt.ended", cost={"training_seconds": 5.0, "worker_seconds": 9.0}),
        event(3, "trial.queued", reason="tried again", cost={"training_seconds": 5.0, "worker_seconds": 9.0}),
        event(4, "trial.running", attempt=2, agent="here"),
        event(5, "trial.completed", number=0, step=7, cost={"training_seconds": 25.0, "gpu_seconds": 0.0}),
    ]
    row = experiment()
    row.cost = {"training_seconds": 25.0, "worker_seconds": 50.0}
    projection = project(ProjectionInput(row, {"t-0": trial()}), events)
    points = [(point.metric, point.value, point.step) for point in projection.runs[RunKey("t-0")].metrics]
    assert points == [
        ("paceline/seconds_training", 5.0, 0),
        ("paceline/worker_seconds", 9.0, 0),
        ("paceline/seconds_training", 25.0, 7),
        ("paceline/gpu_seconds", 0.0, 7),
    ]
    assert projection.parent.tags["paceline.cost"] == "50 worker-seconds: training 100 %"


def test_unknown_kinds_of_events_are_ignored() -> None:
    projection = project(
        ProjectionInput(experiment(), {"t-0": trial()}), [event(1, "trial.blessed"), event(2, "new", None)]
    )
    assert projection.runs == {}


def test_a_run_has_its_best_value_and_its_best_checkpoint_where_the_best_report_counts() -> None:
    values = ((1, 0.5, True), (2, 0.2, True), (3, 0.4, False))
    events = [
        one
        for step, value, is_best in values
        for one in (
            event(2 * step, "report", step=step, metrics={"val/loss": value}, is_best=is_best),
            event(2 * step + 1, "checkpoint", uri=f"/c/{step}", step=step, is_best=is_best),
        )
    ]
    events.append(event(9, "trial.completed", number=0, values=[0.2], step=3, best_step=2))
    run = project(ProjectionInput(experiment(objectives=BEST), {"t-0": trial()}), events).runs[RunKey("t-0")]
    points = [(one.step, one.value) for one in run.metrics if one.metric == "paceline/best_val/loss"]
    assert points == [(1, 0.5), (2, 0.2), (3, 0.2)], "the newest point is the best value"
    tags = [run.tags[f"paceline.{name}"] for name in ("checkpoint", "checkpoint_step", "best_step")]
    assert tags == ["/c/2", "2", "2"]
    events[2].data = {**events[2].data, "metrics": {"lr": 0.1}}  # a further report of the best step
    again = project(ProjectionInput(experiment(objectives=BEST), {"t-0": trial()}), events).runs[RunKey("t-0")]
    assert [one.step for one in again.metrics if one.metric == "paceline/best_val/loss"] == [1, 3]


def test_a_key_that_keeps_failing_rests_longer_each_time() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        backoff.failed("x")
        now += seconds - 0.5
        assert backoff.is_resting("x")
        now += 0.5
        assert not backoff.is_resting("x")
    backoff.succeeded("x")
    backoff.failed("x")
    now += 1
    assert not backoff.is_resting("x")


TWO = {
    "objectives": [{"metric": "loss", "direction": "minimize"}, {"metric": "accuracy", "direction": "maximize"}],
    "constraints": [{"metric": "size", "max": 10}],
}


def ended(number: int, *values: Any, kind: str = "trial.completed", **facts: Any) -> EventRow:
    return event(number + 1, kind, f"t-{number}", number=number, values=list(values), **facts)


def test_with_several_objectives_the_parent_shows_the_front() -> None:
    ends = [ended(0, 3, 0.5), ended(1, 2, 0.75), ended(2, 2.5, 0.25), ended(3, 1, 0.25), ended(4, 5, 0.75)]
    projection = project(
        ProjectionInput(experiment(**TWO), best=BestSoFar(front=ParetoFront.of(experiment(**TWO)))), ends
    )
    assert projection.parent.tags["paceline.pareto_front"] == "1, 3"
    assert "paceline.best_trial" not in projection.parent.tags
    assert "| 3 | 1 | 0.25 |\n| 1 | 2 | 0.75 |" in projection.parent.tags["mlflow.note.content"]


def test_the_parent_says_why_the_experiment_failed() -> None:
    failed = experiment()
    failed.status, failed.end_reason = "failed", "too_many_failures"
    failed.end_detail = "the first 5 trials failed alike: ImportError: no module 'models'"
    projection = project(ProjectionInput(failed), [event(9, "experiment.failed", None, reason="too_many_failures")])
    assert failed.end_detail in projection.parent.tags[DESCRIPTION].splitlines()


def test_infeasible_trials_are_on_no_front_and_never_the_best() -> None:
    trials = {"t-0": trial(0), "t-1": trial(1)}
    ends = [ended(0, 3, 0.5, feasible=True), ended(1, 1, 0.9, feasible=False)]
    projection = project(
        ProjectionInput(experiment(**TWO), trials, best=BestSoFar(front=ParetoFront.of(experiment(**TWO)))), ends
    )
    assert projection.parent.tags["paceline.pareto_front"] == "0"
    assert [projection.runs[RunKey(id_)].tags["paceline.feasible"] for id_ in ("t-0", "t-1")] == ["yes", "no"]
    newest = {point.metric: point.value for point in projection.parent.metrics}
    assert newest == {"best_loss": 3, "best_accuracy": 0.5}


def test_the_hypervolume_grows_from_a_point_that_the_first_trials_fix() -> None:
    """Optuna's own hypervolume history is the oracle, with the same reference point."""
    firsts = [(3, 0.5), (4, 0.75), (3.5, 0.25), (2, 0.25), (5, 0.5)]
    laters = [(9, 0.1), (1, 0.5), (0.5, 0.9), (4, 0.95)]
    spec = experiment(**TWO)
    ends = [ended(number, *values) for number, values in enumerate([*firsts, *laters])]
    projection = project(ProjectionInput(spec, best=BestSoFar(front=ParetoFront.of(spec))), ends)
    curve = {point.step: point.value for point in projection.parent.metrics if point.metric == "hypervolume"}
    # The worst of the first five is (5, 0.25); their ranges are 3 and 0.5.
    study = optuna.create_study(directions=["minimize", "maximize"])
    study.add_trials([optuna.trial.create_trial(values=values) for values in [*firsts, *laters]])
    oracle = _get_hypervolume_history_info(study, np.array([5.3, 0.2])).values
    assert set(curve) == {5, 7, 8, 9}
    assert [curve[step] for step in sorted(curve)] == pytest.approx([oracle[step - 1] for step in sorted(curve)])


def test_batches_of_any_size_give_the_same_front() -> None:
    spec = experiment(**TWO)
    ends = [ended(number, (number * 7) % 10, (number * 3) % 10) for number in range(20)]
    whole = project(ProjectionInput(spec, best=BestSoFar(front=ParetoFront.of(spec))), ends)
    best, metrics = BestSoFar(front=ParetoFront.of(spec)), list[MetricPoint]()
    for start in range(0, 20, 3):
        part = project(ProjectionInput(spec, best=best), ends[start : start + 3])
        best, metrics = part.best, [*metrics, *part.parent.metrics]
    assert best == whole.best
    assert metrics == whole.parent.metrics


def test_a_changed_spec_is_shown_with_the_change_and_the_users_own_tags() -> None:
    changes = [
        event(1, "experiment.changed", None, field="limits.max_trials", before=10, after=20),
        event(2, "experiment.changed", None, field="tags.team", before=None, after="vision"),
        event(3, "experiment.changed", None, field="tags.old", before="x", after=None),
    ]
    tags = project(ProjectionInput(experiment(limits={"max_trials": 20})), changes).parent.tags
    assert tags["paceline.changed.limits.max_trials"] == "10 -> 20"
    assert tags["paceline.changed.tags.team"] == 'nothing -> "vision"'
    assert "max_trials: 20" in tags["paceline.spec"]
    assert (tags["team"], tags["old"]) == ("vision", "")


def test_a_warm_start_is_shown() -> None:
    source = {"experiment": "july", "taken": 20, "left_out": {"failed": 2, "lr is outside of the space": 1}}
    begun = event(2, "experiment.warm_started", None, sources=[source])
    assert (
        project(ProjectionInput(experiment()), [begun]).parent.tags["paceline.warm_start"]
        == "july: 20 taken, 3 left out"
    )


def test_what_the_service_has_chosen_is_shown() -> None:
    sampler = {"name": "tpe", "why": "the space has conditions"}
    first = {"options": {"rule": "auto"}, "why": "no trial has completed"}
    then = {"options": {"rule": "hyperband", "max_step": 9}, "why": "trial 0 made 9 reports"}
    events = [
        event(1, "experiment.search_chosen", None, sampler=sampler, early_stopping=first, training=None),
        event(5, "experiment.search_chosen", None, sampler=sampler, early_stopping=then, training={}),
    ]
    tags = project(ProjectionInput(experiment()), events).parent.tags
    assert tags["paceline.sampler"] == "tpe: the space has conditions"
    assert tags["paceline.early_stopping"] == "hyperband: trial 0 made 9 reports"
    own = event(
        1, "experiment.search_chosen", None, sampler=sampler, early_stopping=then | {"why": None}, training=None
    )
    assert "paceline.early_stopping" not in project(ProjectionInput(experiment()), [own]).parent.tags


def test_a_confirmation_is_not_the_best_and_the_winner_is() -> None:
    found = [{"number": 0, "value": 0.2, "mean": 0.25, "standard_error": 0.01, "n": 3, "failed_count": 0}]
    events = [
        event(1, "trial.completed", number=0, values=[0.2]),
        event(2, "trial.completed", "t-1", number=1, values=[0.1]),
        event(3, "trial.completed", "t-2", number=2, values=[0.01], confirms=0),
        event(4, "experiment.confirmed", None, verdict="trial 0 leads", ranking=found),
    ]
    trials = {f"t-{number}": trial(number) for number in range(3)}
    trials["t-0"].value = 0.2
    before = project(ProjectionInput(experiment(), trials), events[:3]).parent.tags
    assert (before["paceline.best_trial"], before["paceline.best_value"]) == ("1", "0.1")
    after = project(ProjectionInput(experiment(), trials, winner=trials["t-0"]), events).parent.tags
    assert (after["paceline.best_trial"], after["paceline.best_value"]) == ("0", "0.2")
    assert (after["paceline.confirmation"], after["paceline.confirmed_mean"]) == ("trial 0 leads", "0.25")


def test_the_run_of_a_confirmation_says_what_it_confirms_and_its_seed() -> None:
    one = trial(5, lr=0.1)
    one.confirms, one.seed, one.source = 2, 1, "confirmation"
    run = trial_run(experiment(config={"seed": 0, "epochs": 3}), one, "parent")
    assert (run.tags["paceline.confirms"], run.tags["paceline.source"]) == ("2", "confirmation")
    assert run.params == {"seed": "1", "epochs": "3", "lr": "0.1"}


def test_a_run_has_its_system_metrics_at_the_times_of_the_samples() -> None:
    times = [START + timedelta(seconds=seconds) for seconds in (10, 20)]
    names = ("cpu_utilization_percentage", "gpu_0_memory_usage_megabytes")
    samples = [
        {"at": times[0].isoformat(), "step": 9, "metrics": {names[0]: 30.0, names[1]: 512.0}},
        {"at": times[1].isoformat(), "step": 19, "node": 1, "metrics": {names[0]: 40.0}},
    ]
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(60, "attempt.system_metrics", attempt=1, samples=samples),
    ]
    update = project(ProjectionInput(experiment(), {"t-0": trial()}), events).runs[RunKey("t-0")]
    assert update.metrics == [
        MetricPoint("system/cpu_utilization_percentage", 30.0, times[0], 9),
        MetricPoint("system/gpu_0_memory_usage_megabytes", 512.0, times[0], 9),
        MetricPoint("system/node_1/cpu_utilization_percentage", 40.0, times[1], 19),
    ]


def test_a_run_has_the_number_of_workers_over_the_steps_of_an_elastic_group() -> None:
    events = [
        event(1, "trial.running", attempt=1, agent="here"),
        event(2, "attempt.world_size", attempt=1, world_size=1, step=0),
        event(3, "attempt.world_size", attempt=2, world_size=4, step=7),
    ]
    update = project(ProjectionInput(experiment(), {"t-0": trial()}), events).runs[RunKey("t-0")]
    points = [(one.value, one.step) for one in update.metrics if one.metric == "paceline/world_size"]
    assert points == [(1, 0), (4, 7)]
    assert update.tags["paceline.world_size"] == "4"
