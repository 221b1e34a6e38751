"""From a batch of events to MLflow's writes. Pure: the same events give the same writes, so they may be repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from service.domain import cost_summary
from service.domain.statuses import ELIGIBLE_FOR_BEST
from service.mirror import mlflow_limits
from service.mirror.runs import descriptions
from service.mirror.runs.experiment_metric_names import names_of_metrics
from service.mirror.runs.new_runs import RUN_NAME_TAG, experiment_run, parent_run_name
from service.mirror.runs.objectives import BestValue, best_report_metric, objectives_of
from service.mirror.runs.pareto_front import ParetoFront
from service.mirror.runs.run_update import RunStatus, RunUpdate
from service.mirror.runs.trial_run_update import TRIAL_ENDS, apply_trial_event, changes_a_run
from service.store.tables import EventRow, ExperimentRow, GenerationRow, TrialRow

CONTENDING_ENDS = tuple(f"trial.{status}" for status in ELIGIBLE_FOR_BEST)
EXPERIMENT_ENDS: Mapping[str, RunStatus] = {
    "experiment.completed": "FINISHED",
    "experiment.failed": "FAILED",
    "experiment.stopped": "KILLED",
}


class RunKey(NamedTuple):
    """A run belongs to one generation of a trial: as long as the trial trains with the same params."""

    trial_id: str
    generation: int = 0


@dataclass(frozen=True)
class BestSoFar:
    """The best results after some events: the count of ended trials, and the best value of each objective.

    `front` is the Pareto front of several objectives; None for one.
    """

    ended_count: int = 0
    values: tuple[BestValue, ...] = ()
    front: ParetoFront | None = None


@dataclass(frozen=True)
class ProjectionInput:
    """What a batch of events is read with.

    `trials` are those that the events or `best` name, `generations` those of the trials that have more than one,
    `counts` the trials by status, as of now, and `best` the results before the batch. `winner` is the trial that
    confirmations have shown to be the best, as of now.
    With `is_revision` the batch begins with taking back ends of trials and has none, and `best` are the results without
    these ends.
    """

    experiment: ExperimentRow
    trials: Mapping[str, TrialRow] = field(default_factory=dict)
    generations: Mapping[str, Sequence[GenerationRow]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    best: BestSoFar = field(default_factory=BestSoFar)
    winner: TrialRow | None = None
    is_revision: bool = False

    def run_key(self, event: EventRow) -> RunKey | None:
        """Return the run that the event belongs to; None for an event without a known trial or that no run shows."""
        if event.trial_id is None or event.trial_id not in self.trials or not changes_a_run(event):
            return None
        generations = self.generations.get(event.trial_id, ())
        # The event that begins a generation is the last one of the generation before.
        number = max((one.number for one in generations if one.began_at_event < event.seq), default=0)
        return RunKey(event.trial_id, number)

    def generation(self, run: RunKey) -> GenerationRow | None:
        """None for a trial with a single generation."""
        generations = self.generations.get(run.trial_id, ())
        return next((one for one in generations if one.number == run.generation), None)


@dataclass(frozen=True)
class Projection:
    """The writes for a batch. `best` are the results after it."""

    parent: RunUpdate
    runs: dict[RunKey, RunUpdate]
    best: BestSoFar


def project(given: ProjectionInput, events: Sequence[EventRow]) -> Projection:
    """Return the writes for consecutive `events`. A trial gets a run when it first runs, or when it ends without."""
    names = names_of_metrics(given.experiment)
    parent = RunUpdate(started_at=given.experiment.created_at, metric_names=names)
    runs: dict[RunKey, RunUpdate] = {}
    best = given.best
    for event in events:
        if event.trial_id is None:
            _apply_experiment_event(parent, given.experiment, event)
        elif (key := given.run_key(event)) is not None:
            update = runs.setdefault(key, RunUpdate(started_at=event.at, metric_names=names))
            apply_trial_event(update, event)
            _add_best_report(update, given.experiment, event)
        if event.kind in TRIAL_ENDS:
            before, best = best, _best_after(best, given.experiment, event)
            _add_best_metrics(parent, before, best, event.at)
    if given.is_revision:
        _add_best_metrics(parent, None, best, events[0].at)
        if not best.values:
            parent.clear_tags("best_trial", "best_trial_id", "best_value")
    _summarize(parent, given, best)
    return Projection(parent, runs, best)


def takes_back_end(event: EventRow) -> bool:
    """Whether a trial runs again that had ended with a result, which does not count any more."""
    return event.kind == "trial.queued" and event.data.get("ended_as") in ELIGIBLE_FOR_BEST


def _add_best_report(update: RunUpdate, experiment: ExperimentRow, event: EventRow) -> None:
    """A point for each report that was the trial's best, and one at its end that is the newest whatever came before."""
    metric, data = best_report_metric(experiment), event.data
    if metric is None:
        return
    objective = experiment.spec["objectives"][0]["metric"]
    if event.kind == "report" and data.get("is_best"):
        update.add_metrics({metric: data["metrics"].get(objective)}, event.at, int(data["step"]))
    elif event.kind in TRIAL_ENDS and data.get("best_step") is not None:
        update.add_metrics({metric: data["values"][0]}, event.at, int(data["step"]))
        update.set_tags(best_step=data["best_step"])


def _apply_experiment_event(parent: RunUpdate, experiment: ExperimentRow, event: EventRow) -> None:
    status = event.kind.removeprefix("experiment.")
    if event.kind in EXPERIMENT_ENDS:
        parent.set_tags(status=status, why_ended=event.data.get("reason"))
        parent.set_status(EXPERIMENT_ENDS[event.kind], event.at)
    elif status in {"running", "paused"}:
        parent.set_tags(status=status)
        if event.data.get("ended_by"):
            parent.clear_tags("why_ended")
        parent.set_status("RUNNING")
    elif event.kind == "experiment.warm_started":
        parent.set_tags(warm_start=descriptions.warm_start(event.data.get("sources") or []))
    elif event.kind == "experiment.search_chosen":
        parent.set_tags(**descriptions.search_choice(event.data))
    elif event.kind == "experiment.confirmed":
        _apply_confirmed(parent, event)
    elif event.kind == "experiment.changed":
        _apply_change(parent, experiment, event.data)


def _apply_confirmed(parent: RunUpdate, event: EventRow) -> None:
    """What the confirmations have shown, and the figures of the best configuration."""
    first: dict[str, Any] = next(iter(event.data.get("ranking") or []), {})
    figures = {f"confirmed_{name}": first.get(name) for name in ("mean", "standard_error", "n")}
    parent.set_tags(confirmation=event.data.get("verdict"), **figures)


def _apply_change(parent: RunUpdate, experiment: ExperimentRow, data: Mapping[str, Any]) -> None:
    """Update the spec, the tag with the change, and the user's own tags. A removed tag becomes empty."""
    field, before, after = str(data["field"]), data.get("before"), data.get("after")
    change = descriptions.change(before, after)
    parent.set_tags(spec=descriptions.spec_yaml(experiment), **{f"changed.{field}": change})
    name = field.removeprefix("tags.")
    if field.startswith("tags.") and name not in experiment_run(experiment).fixed_tags:
        if name == RUN_NAME_TAG:
            parent.tags[name] = mlflow_limits.text(after or parent_run_name(experiment), mlflow_limits.RUN_NAME_LENGTH)
        else:
            parent.tags |= mlflow_limits.texts({name: after or ""})


def _best_after(before: BestSoFar, experiment: ExperimentRow, end: EventRow) -> BestSoFar:
    after = replace(before, ended_count=before.ended_count + 1)
    if end.kind not in CONTENDING_ENDS or end.data.get("confirms") is not None:
        return after
    if before.front is not None:
        after = replace(after, front=before.front.after(end))
    if end.data.get("feasible") is not False:
        values = (objective.best_after(before.values, end) for objective in objectives_of(experiment))
        after = replace(after, values=tuple(one for one in values if one is not None))
    return after


def _add_best_metrics(parent: RunUpdate, before: BestSoFar | None, after: BestSoFar, at: datetime) -> None:
    """Add points to the parent's curves by the count of ended trials, so that the newest point is the best one.

    `before` is None in a revision: its points are later ones at the newest step, and so are the ones that are shown.
    """
    has_new_front = before is None or after.front is not before.front
    if after.front is not None and has_new_front and (volume := after.front.volume) is not None:
        parent.add_metrics({"hypervolume": volume}, at, after.ended_count)
    parent.add_metrics({f"best_{one.metric}": one.value for one in after.values}, at, after.ended_count)


def _summarize(parent: RunUpdate, given: ProjectionInput, best: BestSoFar) -> None:
    first = best.values[0] if best.values and best.front is None else None
    trial = given.winner or (given.trials.get(first.trial_id) if first else None)
    if first and trial:
        value = first.value if given.winner is None else given.winner.value
        parent.set_tags(best_trial=trial.number, best_trial_id=trial.id, best_value=f"{value:.6g}")
    if best.front is not None:
        numbers = sorted(one.number for one in best.front.members)
        parent.set_tags(pareto_count=len(numbers), pareto_front=", ".join(map(str, numbers)))
    parent.set_tags(trials=descriptions.counts(given.counts))
    if given.experiment.cost:
        parent.set_tags(cost=cost_summary.summary(given.experiment.cost))
    parent.describe(descriptions.experiment(given.experiment, given.counts, trial, best.front))
