"""Holding another early-stopping rule against what an experiment has recorded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from search.early_stopping import EarlyStoppingSpec, rule_for
from search.early_stopping.measure import Measure, measure_of, mistakes_in_measure, number_in
from search.replay import Completion, Course, Point, best_of, replay
from service.domain.statuses import CONTENDERS, NO_NEW_TRIALS, EndReason, TrialStatus
from service.errors import Invalid, Mistake
from service.operations.context import Context
from service.operations.finding import experiment_named
from service.operations.specs import spec_of
from service.spec.mistakes import readable
from service.spec.models import ExperimentSpec
from service.store.curves import Told, told_after
from service.store.tables import ExperimentRow, TrialRow

PAGE = 5000
KINDS = ("report", "trial.completed", "experiment.ending")
MAX_REPORTS = 1_000_000
"""More would take minutes and hundreds of megabytes."""


@dataclass(frozen=True)
class Replayed:
    """What the rule would have done, by the trials' numbers. `values` are of those that may be the best."""

    measure: Measure
    trials: dict[int, TrialRow]
    courses: dict[int, Course]
    values: dict[int, float]
    best: int | None
    best_then: int | None

    @property
    def cut_short(self) -> list[int]:
        """Trials whose curves end early because the experiment's own rule stopped them."""
        return [number for number, trial in self.trials.items() if trial.status == TrialStatus.PRUNED]


def replay_experiment(context: Context, name_or_id: str, rule: EarlyStoppingSpec) -> Replayed:
    """Changes nothing, and reads page by page. Raises NotFound, and Invalid for a rule that does not suit it."""
    with context.database.read() as session:
        experiment = experiment_named(session, name_or_id)
        found = session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)).all()
    spec = spec_of(experiment)
    measure = _measure(rule, spec)
    numbers = {trial.id: trial.number for trial in found}
    seen: set[str] = set()
    events = events_of(_counted(_told(context, experiment), seen), numbers, measure.metric)
    courses = replay(rule_for(rule), measure, events)
    if seen and not any(course.step_count for course in courses.values()):
        known = ", ".join(sorted(seen))
        raise Invalid([Mistake("early_stopping.metric", f"{measure.metric} was never reported; known here: {known}")])
    trials = {trial.number: trial for trial in found}
    values, by = _values(spec, measure, trials, courses)
    then = {number: value for number, value in values.items() if courses[number].stop is None}
    return Replayed(measure, trials, courses, values, best_of(values, by), best_of(then, by))


def _measure(rule: EarlyStoppingSpec, spec: ExperimentSpec) -> Measure:
    if rule.not_replayed:
        raise Invalid([Mistake("early_stopping.rule", f"{rule.rule} cannot be replayed: it {rule.not_replayed}")])
    objectives = [Measure(one.metric, one.direction) for one in spec.objectives]
    mistakes = [mistake.under("early_stopping") for mistake in mistakes_in_measure(rule, objectives)]
    if mistakes:
        raise Invalid([readable(mistake) for mistake in mistakes])
    return measure_of(rule, objectives)


def _told(context: Context, experiment: ExperimentRow) -> Iterator[Told]:
    """Up to now; between the pages nothing is held."""
    seq = 0
    while True:
        with context.database.read() as session:
            page = told_after(session, experiment.id, KINDS, seq, experiment.event_count, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        seq = page[-1].seq


def _counted(told: Iterable[Told], metrics: set[str]) -> Iterator[Told]:
    """Notes the metrics' names. Raises Invalid."""
    for count, one in enumerate(told):
        if count == MAX_REPORTS:
            raise Invalid(
                [Mistake("", f"the experiment has more than {MAX_REPORTS:,} reports; a replay takes no more")]
            )
        if one.kind == "report" and count < PAGE:
            metrics.update(one.data["metrics"])
        yield one


def events_of(told: Iterable[Told], numbers: dict[str, int], metric: str) -> Iterator[Point | Completion]:
    """Reports of trials that had been told to leave, by the experiment's end, are not judged."""
    leaving, pending = False, None
    for one in told:
        if one.kind == "experiment.ending":
            reason = EndReason(one.data["reason"])
            leaving = leaving or reason not in NO_NEW_TRIALS
            if pending and reason is EndReason.TARGET_REACHED:
                pending = replace(pending, judged=False)  # the report that reached it
            continue
        if pending:
            yield pending
            pending = None
        number = numbers.get(one.trial_id or "")
        if number is None:
            continue
        if one.kind == "trial.completed":
            yield Completion(number)
        elif (value := number_in(one.data["metrics"], metric)) is not None:
            pending = Point(number, one.data["step"], value, judged=not leaving)
    if pending:
        yield pending


def _values(
    spec: ExperimentSpec, measure: Measure, trials: dict[int, TrialRow], courses: dict[int, Course]
) -> tuple[dict[int, float], Measure]:
    """What the trials that may be the best ended with: the only objective, or with several what the rule looks at."""
    if len(spec.objectives) == 1:
        by = Measure(spec.objective.metric, spec.objective.direction)
        found = {number: trial.value for number, trial in _contenders(spec, trials.values())}
    else:
        by = measure
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
