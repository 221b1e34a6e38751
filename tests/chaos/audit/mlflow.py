"""MLflow has exactly what SQL has: each experiment, trial and point once."""

from collections import defaultdict
from collections.abc import Iterator

from service.mirror.trial_events import TRIAL_ENDS, cost_metric, system_metric
from tests.chaos.evidence.snapshot import Experiment, MlflowRun, Snapshot, Trial


def mlflow_agrees(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        yield from (f"{experiment.name}: in MLflow {what}" for what in _experiment(experiment))
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


def _best_curve(experiment: Experiment) -> list[tuple[int, float]]:
    """The best loss of the completed trials, over the count of ended ones."""
    curve, best = [], float("inf")
    final = {trial.id: trial for trial in experiment.trials}
    ends = [event for event in experiment.events if event.kind in TRIAL_ENDS]
    for count, event in enumerate(ends, start=1):
        trial = final.get(event.trial or "")
        if event.kind == "trial.completed" and trial and trial.curve:
            best = min(best, trial.curve[-1].metrics["loss"])
        if best < float("inf"):
            curve.append((count, best))
    return curve


def _trial(experiment: Experiment, trial: Trial) -> Iterator[str]:
    if len(trial.mirrored) != 1:
        yield f"has {len(trial.mirrored)} runs"
        return
    run = trial.mirrored[0]
    if run.status != TRIAL_ENDS.get(f"trial.{trial.status}"):
        yield f"is {run.status}; it {trial.status}"
    params = {name: str(value) for name, value in {**experiment.spec["config"], **trial.params}.items()}
    if run.params != params:
        yield f"has the parameters {run.params}, not {params}"
    yield from _curves(_expected_curves(experiment, trial), run)


def _expected_curves(experiment: Experiment, trial: Trial) -> dict[str, list[tuple[int, float]]]:
    """The points of the trial's curves, and what its events say of its cost, its workers and their load."""
    curves: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for point in trial.curve:
        for name, value in point.metrics.items():
            curves[name].append((point.step, float(value)))
    for event in experiment.events:
        if event.trial == trial.id and event.kind == "attempt.world_size":
            curves["paceline/world_size"].append((event.data["step"], event.data["world_size"]))
        if event.trial == trial.id and event.kind == "attempt.system_metrics":
            for sample in event.data["samples"]:
                for name, value in sample["metrics"].items():
                    curves[system_metric(name, sample.get("node"))].append((sample["step"], value))
        if event.trial == trial.id and event.kind.startswith("trial."):
            for field, seconds in (event.data.get("cost") or {}).items():
                curves[cost_metric(field)].append((int(event.data.get("step") or 0), seconds))
    return {name: sorted(points) for name, points in curves.items()}


def _curves(expected: dict[str, list[tuple[int, float]]], run: MlflowRun) -> Iterator[str]:
    if set(run.curves) != set(expected):
        yield f"has the metrics {sorted(run.curves)}, not {sorted(expected)}"
    for name in sorted(set(expected) & set(run.curves)):
        found, curve = run.curves[name], expected[name]
        if found != curve:
            odd = sorted(set(found) ^ set(curve))[:5]
            yield f"has another curve of {name}: {len(found)} points for {len(curve)}; differing: {odd}"
