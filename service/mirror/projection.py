"""From events to what MLflow is told. Pure: the same events give the same writes, so a repeat is harmless."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from service.domain.statuses import CONTENDERS
from service.mirror import descriptions, mlflow_limits
from service.mirror.objectives import Best, objectives_of
from service.mirror.pareto_front import Front
from service.store.tables import EventRow, ExperimentRow, GenerationRow, TrialRow

RunStatus = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]

DESCRIPTION = "mlflow.note.content"
# Pruned is an orderly end; MLflow draws KILLED as it draws a failure.
TRIAL_ENDS: Mapping[str, RunStatus] = {
    "trial.completed": "FINISHED",
    "trial.pruned": "FINISHED",
    "trial.failed": "FAILED",
    "trial.stopped": "KILLED",
}
CONTENDING_ENDS = tuple(f"trial.{status}" for status in CONTENDERS)
EXPERIMENT_ENDS: Mapping[str, RunStatus] = {
    "experiment.completed": "FINISHED",
    "experiment.failed": "FAILED",
    "experiment.stopped": "KILLED",
}


class RunOf(NamedTuple):
    """What has a run of its own: a trial, as long as it trains with the same params."""

    trial_id: str
    generation: int = 0


class Point(NamedTuple):
    """One value of a metric. MLflow keeps one row for the same four facts, however often they are sent."""

    metric: str
    value: float
    at: datetime
    step: int


@dataclass
class Update:
    """What a run gets from a batch of events. `started_at` and `params` are for one that MLflow has not heard of."""

    started_at: datetime
    params: Mapping[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[Point] = field(default_factory=list)
    status: RunStatus | None = None
    ended_at: datetime | None = None

    def tag(self, **values: Any) -> None:
        self.tags |= mlflow_limits.texts({f"paceline.{key}": value for key, value in values.items()})

    def describe(self, words: str) -> None:
        self.tags[DESCRIPTION] = mlflow_limits.text(words)

    def measure(self, values: Mapping[str, Any], at: datetime, step: int) -> None:
        for metric, value in values.items():
            number = mlflow_limits.number(value)
            if number is not None:
                self.metrics.append(Point(mlflow_limits.name(metric), number, at, step))

    def move(self, status: RunStatus, ended_at: datetime | None = None) -> None:
        self.status, self.ended_at = status, ended_at

    def first(self, params: Mapping[str, str], *, is_new: bool) -> "Update":
        """Of a run that was not known here. MLflow takes a new one for running; any other is what it was left as."""
        is_said = is_new and self.status == "RUNNING"
        return replace(self, params=params, status=None if is_said else self.status)


@dataclass(frozen=True)
class Standing:
    """How an experiment stood before a batch: how many trials had ended, and the best value of each objective.

    `front` is the Pareto front of several objectives, None for one.
    """

    ended_count: int = 0
    best: tuple[Best, ...] = ()
    front: Front | None = None


@dataclass(frozen=True)
class Facts:
    """What a batch is read with. `counts` is by status, of now; `trials` has those that the batch or `best` name.

    `generations` are those of the trials that have more than one.
    """

    experiment: ExperimentRow
    trials: Mapping[str, TrialRow] = field(default_factory=dict)
    generations: Mapping[str, Sequence[GenerationRow]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)

    def generation(self, run: RunOf) -> GenerationRow | None:
        """None for a trial that has no other than the first."""
        known = self.generations.get(run.trial_id, ())
        return next((one for one in known if one.number == run.generation), None)


@dataclass(frozen=True)
class Projection:
    """`standing` is how the experiment stands after the batch."""

    parent: Update
    runs: dict[RunOf, Update]
    standing: Standing


def project(facts: Facts, events: Sequence[EventRow]) -> Projection:
    """The writes for `events`, which follow one another. A trial gets a run once it has begun, or ended unbegun."""
    parent = Update(started_at=facts.experiment.created_at)
    runs: dict[RunOf, Update] = {}
    standing = facts.standing
    for event in events:
        if event.trial_id is None:
            _tell_parent(parent, facts.experiment, event)
        elif event.kind in _TELL_TRIAL and event.trial_id in facts.trials:
            run = RunOf(event.trial_id, _generation_at(facts.generations.get(event.trial_id, ()), event.seq))
            _TELL_TRIAL[event.kind](runs.setdefault(run, Update(started_at=event.at)), event)
        if event.kind in TRIAL_ENDS:
            standing = _tell_best(parent, facts.experiment, standing, event)
    _summarize(parent, facts, standing)
    return Projection(parent, runs, standing)


def _generation_at(generations: Sequence[GenerationRow], seq: int) -> int:
    """Which of them an event is of; the one that begins another is the last of the one before."""
    return max((one.number for one in generations if one.began_at_event < seq), default=0)


def _tell_parent(parent: Update, experiment: ExperimentRow, event: EventRow) -> None:
    status = event.kind.removeprefix("experiment.")
    if event.kind in EXPERIMENT_ENDS:
        parent.tag(status=status, why_ended=event.data.get("reason"))
        parent.move(EXPERIMENT_ENDS[event.kind], event.at)
    elif status in {"running", "paused"}:
        parent.tag(status=status)
        parent.move("RUNNING")
    elif event.kind == "experiment.warm_started":
        parent.tag(warm_start=descriptions.warm_start(event.data.get("sources") or []))
    elif event.kind == "experiment.changed":
        _tell_change(parent, experiment, **event.data)


def _tell_change(parent: Update, experiment: ExperimentRow, field: str, before: Any, after: Any) -> None:
    """The spec as it is now, what was changed in it, and the user's own tags; one that was taken away is left empty."""
    parent.tag(spec=descriptions.spec_yaml(experiment), **{f"changed.{field}": descriptions.change(before, after)})
    if field.startswith("tags."):
        parent.tags |= mlflow_limits.texts({field.removeprefix("tags."): "" if after is None else after})


def _tell_best(parent: Update, experiment: ExperimentRow, before: Standing, end: EventRow) -> Standing:
    """Curves of the best values over the count of ended trials: it only grows, so that the newest point is the best."""
    after = replace(before, ended_count=before.ended_count + 1)
    if end.kind in CONTENDING_ENDS and before.front is not None:
        after = _tell_front(parent, before.front, after, end)
    if end.kind in CONTENDING_ENDS and end.data.get("feasible") is not False:
        best = (objective.best_of(before.best, end) for objective in objectives_of(experiment))
        after = replace(after, best=tuple(one for one in best if one is not None))
    parent.measure({f"best_{one.metric}": one.value for one in after.best}, end.at, after.ended_count)
    return after


def _tell_front(parent: Update, before: Front, after: Standing, end: EventRow) -> Standing:
    """A point of the volume's curve for each trial that enlarges it."""
    front = before.after(end)
    if front is not before and front.volume is not None:
        parent.measure({"hypervolume": front.volume}, end.at, after.ended_count)
    return replace(after, front=front)


def _summarize(parent: Update, facts: Facts, standing: Standing) -> None:
    best = standing.best[0] if standing.best and standing.front is None else None
    trial = facts.trials.get(best.trial_id) if best else None
    if best and trial:
        parent.tag(best_trial=trial.number, best_trial_id=trial.id, best_value=f"{best.value:.6g}")
    if standing.front is not None:
        numbers = sorted(one.number for one in standing.front.members)
        parent.tag(pareto_count=len(numbers), pareto_front=", ".join(map(str, numbers)))
    parent.tag(trials=descriptions.counts(facts.counts))
    parent.describe(descriptions.experiment(facts.experiment, facts.counts, trial, standing.front))


def _report(update: Update, event: EventRow) -> None:
    update.measure(event.data.get("metrics") or {}, event.at, int(event.data.get("step") or 0))


def _running(update: Update, event: EventRow) -> None:
    update.tag(status="running", attempt=event.data.get("attempt"), agent=event.data.get("agent"))
    update.describe(f"running: attempt {event.data.get('attempt')} on {event.data.get('agent')}")
    update.move("RUNNING")


def _queued(update: Update, event: EventRow) -> None:
    update.tag(status="queued", reason=event.data.get("reason"))
    update.describe(f"queued again: {event.data.get('reason')}")
    update.move("SCHEDULED")


def _paused(update: Update, event: EventRow) -> None:
    update.tag(status="paused", reason=event.data.get("reason"), last_step=event.data.get("step"))
    update.describe(f"paused at step {event.data.get('milestone')}: {event.data.get('reason')}")
    update.move("SCHEDULED")


def _ended(update: Update, event: EventRow) -> None:
    status = event.kind.removeprefix("trial.")
    update.tag(status=status, reason=event.data.get("reason"), last_step=event.data.get("step"))
    if event.data.get("feasible") is not None:
        update.tag(feasible="yes" if event.data["feasible"] else "no")
    update.describe(descriptions.trial_end(status, event.data))
    update.move(TRIAL_ENDS[event.kind], event.at)


def _exploited(update: Update, event: EventRow) -> None:
    """The last word of a generation, whose params nothing trains with any more."""
    said = event.data
    goes_on = descriptions.exploit(said)
    update.tag(status="exploited", goes_on=goes_on, reason=said.get("reason"))
    update.describe(goes_on)
    update.move("FINISHED", event.at)


def _decision(update: Update, event: EventRow) -> None:
    said = event.data
    update.tag(decision=said.get("decision"))
    for fact, key in _DECISION_TAGS.items():
        update.tag(**{f"decision.{key}": said.get(fact)})


def _checkpoint(update: Update, event: EventRow) -> None:
    update.tag(checkpoint=event.data.get("uri"), checkpoint_step=event.data.get("step"))


def _attempt_ended(update: Update, event: EventRow) -> None:
    if event.data.get("kind"):
        update.tag(**{"failure.kind": event.data["kind"], "failure.message": event.data.get("message")})


_DECISION_TAGS = {
    "rule": "rule",
    "reason": "reason",
    "milestone": "rung",
    "cutoff": "cutoff",
    "value": "value",
    "step": "step",
    "compared_count": "compared_count",
    "compared_with": "compared_with",
}
_TELL_TRIAL: Mapping[str, Callable[[Update, EventRow], None]] = {
    "report": _report,
    "trial.running": _running,
    "trial.queued": _queued,
    "trial.paused": _paused,
    "decision": _decision,
    "checkpoint": _checkpoint,
    "attempt.ended": _attempt_ended,
    "trial.exploited": _exploited,
    **dict.fromkeys(TRIAL_ENDS, _ended),
}
