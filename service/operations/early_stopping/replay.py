"""Replays the recorded reports of an experiment under another early-stopping rule."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from search.analysis.replay import TrialReplay, best_of, replay
from search.early_stopping import EarlyStoppingSpec
from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from search.early_stopping.plugin_rules import has_trait
from search.mistakes import Mistake
from service.domain.statuses import TrialStatus
from service.errors import Invalid
from service.operations.early_stopping.replay_events import (
    KINDS,
    KINDS_FOR_PAUSING,
    StopRequests,
    replay_events,
    without_discarded,
)
from service.operations.plugin_rule_errors import refused_failures
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.observations import seed_of
from service.specification.models import ExperimentSpec
from service.store.early_stopping.history import stored_brackets
from service.store.events import EVENTS_PAGE, EventOfKind, events_of_kinds
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import TrialRow
from service.store.trials.eligible_for_best import is_eligible_for_best
from service.store.trials.param_generations import exploits_of
from service.store.trials.trials import is_of_search

MAX_REPORTS = 1_000_000
"""A replay of more would take minutes and hundreds of megabytes."""


@dataclass(frozen=True)
class Replayed:
    """What the rule would have done, by trial number. `values` has the trials that may be the best.

    `best` is the best trial as recorded, `best_then` the best trial among those that the rule would not have stopped.
    """

    metric: ComparedMetric
    trials: dict[int, TrialRow]
    courses: dict[int, TrialReplay]
    values: dict[int, float]
    best: int | None
    best_then: int | None

    @property
    def cut_short(self) -> list[int]:
        """Trials whose curves end early because the experiment's own rule stopped or paused them."""
        short = (TrialStatus.PRUNED, TrialStatus.PAUSED)
        return [number for number, trial in self.trials.items() if trial.status in short]


def replay_experiment(database: Database, name_or_id: str, rule: EarlyStoppingSpec) -> Replayed:
    """Change nothing, and read page by page. Raises NotFound, and Invalid for a rule that cannot be replayed here."""
    with database.read() as session:
        experiment = experiment_named(session, name_or_id)
        own = TrialRow.experiment_id == experiment.id
        found = session.scalars(select(TrialRow).where(own, is_of_search())).all()
        exploits = exploits_of(session, experiment.id)
    spec = spec_of(experiment)
    metric = _compared_metric(rule, spec)
    numbers = {trial.id: trial.number for trial in found}
    seen: set[str] = set()
    kinds = KINDS_FOR_PAUSING if has_trait(rule, "pauses") else KINDS
    recorded = events_of_kinds(database.read, experiment.id, kinds, experiment.event_count)
    counted = _counted(without_discarded(recorded, exploits), seen)
    events = replay_events(counted, numbers, metric.name, StopRequests.of(spec.objective_metrics))
    # With its own rule, the experiment is replayed as it was, whatever its rule was when a trial was created.
    brackets = stored_brackets(found) if rule == spec.early_stopping else None
    with refused_failures(rule):
        courses = replay(rule, metric, spec.space, events, seed=seed_of(spec, experiment.id), brackets=brackets)
    is_unknown = bool(seen) and metric.name not in seen
    if is_unknown and not any(course.step_count for course in courses.values()):
        known = ", ".join(sorted(seen))
        raise Invalid([Mistake(("early_stopping", "metric"), f"{metric.name} was never reported; known here: {known}")])
    trials = {trial.number: trial for trial in found}
    values, by = _values(spec, metric, trials, courses)
    then = {number: value for number, value in values.items() if courses[number].stop is None}
    return Replayed(metric, trials, courses, values, best_of(values, by), best_of(then, by))


def _compared_metric(rule: EarlyStoppingSpec, spec: ExperimentSpec) -> ComparedMetric:
    if rule.not_replayed:
        raise Invalid([Mistake(("early_stopping", "rule"), f"{rule.rule} cannot be replayed: it {rule.not_replayed}")])
    mistakes = [mistake.under("early_stopping") for mistake in mistakes_in_metric(rule, spec.objective_metrics)]
    if mistakes:
        raise Invalid(mistakes)
    return compared_metric_of(rule, spec.objective_metrics)


def _counted(recorded: Iterable[EventOfKind], metrics: set[str]) -> Iterator[EventOfKind]:
    """Add the names of the metrics in the first reports to `metrics`. Raises Invalid for too many reports."""
    count = 0
    for one in recorded:
        if one.kind == "report":
            count += 1
            if count > MAX_REPORTS:
                raise Invalid(
                    [Mistake((), f"the experiment has more than {MAX_REPORTS:,} reports; a replay takes no more")]
                )
            if count <= EVENTS_PAGE:
                metrics.update(one.data["metrics"])
        yield one


def _values(
    spec: ExperimentSpec, metric: ComparedMetric, trials: dict[int, TrialRow], courses: dict[int, TrialReplay]
) -> tuple[dict[int, float], ComparedMetric]:
    """The final values of the trials that may be the best, by the only objective or else the rule's metric."""
    if len(spec.objectives) == 1:
        by = ComparedMetric(spec.objective.metric, spec.objective.direction)
        found = {number: trial.value for number, trial in _eligible(spec, trials.values())}
    else:
        by = metric
        found = {
            number: courses[number].last_value for number, _ in _eligible(spec, trials.values()) if number in courses
        }
    return {number: value for number, value in found.items() if value is not None and number in courses}, by


def _eligible(spec: ExperimentSpec, trials: Iterable[TrialRow]) -> Sequence[tuple[int, TrialRow]]:
    return [
        (trial.number, trial)
        for trial in trials
        if is_eligible_for_best(trial.status, trial.violation, constrained=bool(spec.constraints))
    ]
