"""Holding another early-stopping rule against what an experiment has recorded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from search.analysis.replay import TrialReplay, best_of, replay
from search.early_stopping import EarlyStoppingSpec
from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from service.domain.statuses import CONTENDERS, TrialStatus
from service.errors import Invalid, Mistake
from service.operations.early_stopping.replay_events import KINDS, KINDS_FOR_PAUSING, events_of, without_given_up
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.specification.mistakes import readable
from service.specification.models import ExperimentSpec
from service.store.generations import exploits_of
from service.store.lookup import experiment_named
from service.store.recorded_events import PAGE, Told, told
from service.store.tables import TrialRow

MAX_REPORTS = 1_000_000
"""More would take minutes and hundreds of megabytes."""


@dataclass(frozen=True)
class Replayed:
    """What the rule would have done, by the trials' numbers. `values` are of those that may be the best."""

    metric: ComparedMetric
    trials: dict[int, TrialRow]
    courses: dict[int, TrialReplay]
    values: dict[int, float]
    best: int | None
    best_then: int | None

    @property
    def cut_short(self) -> list[int]:
        """Trials whose curves end early because the experiment's own rule stopped them, or has them wait."""
        short = (TrialStatus.PRUNED, TrialStatus.PAUSED)
        return [number for number, trial in self.trials.items() if trial.status in short]


def replay_experiment(context: Context, name_or_id: str, rule: EarlyStoppingSpec) -> Replayed:
    """Changes nothing, and reads page by page. Raises NotFound, and Invalid for a rule that does not suit it."""
    with context.database.read() as session:
        experiment = experiment_named(session, name_or_id)
        found = session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)).all()
        exploits = exploits_of(session, experiment.id)
    spec = spec_of(experiment)
    metric = _compared_metric(rule, spec)
    numbers = {trial.id: trial.number for trial in found}
    seen: set[str] = set()
    kinds = KINDS_FOR_PAUSING if rule.pauses else KINDS
    recorded = told(context.database.read, experiment.id, kinds, experiment.event_count)
    events = events_of(_counted(without_given_up(recorded, exploits), seen), numbers, metric.name)
    courses = replay(rule, metric, spec.space, events)
    if seen and not any(course.step_count for course in courses.values()):
        known = ", ".join(sorted(seen))
        raise Invalid([Mistake("early_stopping.metric", f"{metric.name} was never reported; known here: {known}")])
    trials = {trial.number: trial for trial in found}
    values, by = _values(spec, metric, trials, courses)
    then = {number: value for number, value in values.items() if courses[number].stop is None}
    return Replayed(metric, trials, courses, values, best_of(values, by), best_of(then, by))


def _compared_metric(rule: EarlyStoppingSpec, spec: ExperimentSpec) -> ComparedMetric:
    if rule.not_replayed:
        raise Invalid([Mistake("early_stopping.rule", f"{rule.rule} cannot be replayed: it {rule.not_replayed}")])
    mistakes = [mistake.under("early_stopping") for mistake in mistakes_in_metric(rule, spec.objective_metrics)]
    if mistakes:
        raise Invalid([readable(mistake) for mistake in mistakes])
    return compared_metric_of(rule, spec.objective_metrics)


def _counted(told: Iterable[Told], metrics: set[str]) -> Iterator[Told]:
    """Notes the metrics' names of the first reports. Raises Invalid."""
    count = 0
    for one in told:
        if one.kind == "report":
            count += 1
            if count > MAX_REPORTS:
                raise Invalid(
                    [Mistake("", f"the experiment has more than {MAX_REPORTS:,} reports; a replay takes no more")]
                )
            if count <= PAGE:
                metrics.update(one.data["metrics"])
        yield one


def _values(
    spec: ExperimentSpec, metric: ComparedMetric, trials: dict[int, TrialRow], courses: dict[int, TrialReplay]
) -> tuple[dict[int, float], ComparedMetric]:
    """What the trials that may be the best ended with: the only objective, or with several what the rule looks at."""
    if len(spec.objectives) == 1:
        by = ComparedMetric(spec.objective.metric, spec.objective.direction)
        found = {number: trial.value for number, trial in _contenders(spec, trials.values())}
    else:
        by = metric
        found = {
            number: courses[number].last_value for number, _ in _contenders(spec, trials.values()) if number in courses
        }
    return {number: value for number, value in found.items() if value is not None and number in courses}, by


def _contenders(spec: ExperimentSpec, trials: Iterable[TrialRow]) -> Sequence[tuple[int, TrialRow]]:
    return [
        (trial.number, trial)
        for trial in trials
        if trial.status in CONTENDERS and (not spec.constraints or trial.violation == 0)
    ]
