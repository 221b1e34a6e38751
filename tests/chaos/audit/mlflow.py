"""MLflow has exactly what SQL has: each experiment, trial and point once."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from service.mirror.runs.new_runs import GENERATION_TAG
from service.mirror.runs.projection import CONTENDING_ENDS
from service.mirror.runs.trial_run_update import TRIAL_ENDS, cost_metric, system_metric
from tests.chaos.evidence.generations import Generation, generations
from tests.chaos.evidence.snapshot import Event, Experiment, MlflowRun, Snapshot, Trial
from tests.chaos.run import had_artifacts_away


def mlflow_agrees(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        yield from (f"{experiment.name}: in MLflow {what}" for what in _experiment(experiment))
        if had_artifacts_away(snapshot.record):
            yield from (f"{experiment.name}: in MLflow {what}" for what in _charts(experiment))
        for trial in experiment.trials:
            yield from (
                f"{experiment.name}: in MLflow trial {trial.number} {what}" for what in _trial(experiment, trial)
            )


def _experiment(experiment: Experiment) -> Iterator[str]:
    if experiment.mirror_experiments != 1:
        yield f"there are {experiment.mirror_experiments} experiments for it"
    yield from (f"run {run.run_id} stands for no trial of it" for run in experiment.foreign)
    if len(experiment.parents) != 1:
        yield f"there are {len(experiment.parents)} parent runs"
        return
    parent = experiment.parents[0]
    if parent.status != "FINISHED":
        yield f"its parent run is {parent.status}"
    curve = _best_curve(experiment)
    if parent.curves.get("best_loss", []) != curve:
        yield f"the curve of the best is {parent.curves.get('best_loss')}, not {curve}"


def _charts(experiment: Experiment) -> Iterator[str]:
    for parent in experiment.parents:
        if not parent.charts:
            yield "its parent run has no charts"
        yield from (f"the chart {name} is empty" for name, size in parent.charts.items() if not size)


def _best_curve(experiment: Experiment) -> list[tuple[int, float]]:
    """The best last loss of the trials that may be the best, over the count of ends.

    A trial that runs again is none of them until its next end: the curve gets another point of the same count, also if
    the trial had reported nothing. Trials that run again by the same call have one point together.
    """
    points: dict[tuple[int, float | None], float | None] = {}
    last: dict[str | None, float] = {}
    contenders: set[str | None] = set()
    results: dict[str | None, float] = {}
    count = 0
    for event in experiment.events:
        if event.kind == "report":
            last[event.trial] = event.data["metrics"]["loss"]
        is_end, is_taken_back = event.kind in TRIAL_ENDS, event.kind == "trial.queued" and event.trial in contenders
        if is_taken_back:
            contenders.discard(event.trial)
            results.pop(event.trial, None)
        count += is_end
        if event.kind in CONTENDING_ENDS:
            contenders.add(event.trial)
            if event.trial in last:
                results[event.trial] = last[event.trial]
        if is_end or is_taken_back:
            points[count, event.at if is_taken_back else None] = min(results.values(), default=None)
    return sorted((count, best) for (count, _), best in points.items() if best is not None)


def _trial(experiment: Experiment, trial: Trial) -> Iterator[str]:
    """A trial has a run for each of its generations."""
    known = generations(experiment, trial)
    if len(trial.mirrored) != len(known):
        yield f"has {len(trial.mirrored)} runs"
        return
    runs = {int(run.tags.get(GENERATION_TAG) or 0): run for run in trial.mirrored}
    for one in known:
        which = f"in generation {one.number} " if one.number else ""
        if one.number not in runs:
            yield f"has no run of generation {one.number}"
            continue
        yield from (f"{which}{what}" for what in _run(experiment, trial, one, runs[one.number]))


def _run(experiment: Experiment, trial: Trial, generation: Generation, run: MlflowRun) -> Iterator[str]:
    status = TRIAL_ENDS.get(f"trial.{trial.status}") if generation.until is None else "FINISHED"
    if run.status != status:
        yield f"is {run.status}; it {trial.status}"
    params = {name: str(value) for name, value in {**experiment.spec["config"], **generation.params}.items()}
    if run.params != params:
        yield f"has the parameters {run.params}, not {params}"
    own = [event for event in experiment.events if event.trial == trial.id and generation.has(event)]
    yield from _curves(_expected_curves(trial, own), run)


def _expected_curves(trial: Trial, events: Sequence[Event]) -> dict[str, list[tuple[int, float]]]:
    """The points of the trial's curves, and what its events say of its cost, its workers and their load."""
    curves: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    reported = {(event.data["attempt"], event.data["sequence"]) for event in events if event.kind == "report"}
    for point in (point for point in trial.curve if (point.attempt, point.sequence) in reported):
        for name, value in point.metrics.items():
            curves[name].append((point.step, float(value)))
    for event in events:
        for name, step, value in _figures(event):
            curves[name].append((step, value))
    return {name: sorted(points) for name, points in curves.items()}


def _figures(event: Event) -> Iterator[tuple[str, int, float]]:
    """What an event says of its attempt's workers and their load, and of the trial's cost so far."""
    if event.kind == "attempt.world_size":
        yield "paceline/world_size", event.data["step"], event.data["world_size"]
    if event.kind == "attempt.system_metrics":
        yield from _system_metrics(event.data["samples"])
    if event.kind.startswith("trial."):
        for field, seconds in (event.data.get("cost") or {}).items():
            yield cost_metric(field), int(event.data.get("step") or 0), seconds


def _system_metrics(samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int, float]]:
    """MLflow has equal values of a millisecond once: a slot that was frozen gets several samples at the same time."""
    seen = {
        (system_metric(name, sample.get("node")), sample["step"], value, _milliseconds(sample["at"]))
        for sample in samples
        for name, value in sample["metrics"].items()
    }
    yield from ((name, step, value) for name, step, value, _ in seen)


def _milliseconds(at: str) -> int:
    return round(1000 * datetime.fromisoformat(at).timestamp())


def _curves(expected: dict[str, list[tuple[int, float]]], run: MlflowRun) -> Iterator[str]:
    if set(run.curves) != set(expected):
        yield f"has the metrics {sorted(run.curves)}, not {sorted(expected)}"
    for name in sorted(set(expected) & set(run.curves)):
        found, curve = run.curves[name], expected[name]
        if found != curve:
            odd = sorted(set(found) ^ set(curve))[:5]
            yield f"has another curve of {name}: {len(found)} points for {len(curve)}; differing: {odd}"
