"""Caches how much each parameter of an experiment matters, by its completed trials or by the curve scores of all."""

import threading
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from search.analysis.importance import Evaluator, Importance, Measured, sampled
from search.mistakes import Mistake
from search.problem import Direction
from search.space.space import Space
from service.errors import Invalid
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.curve_scores import Measure, curve_scores, may_be_judged, measure_of
from service.runtime.observations.targets_and_constraints import known_values
from service.specification.models import ExperimentSpec
from service.specification.spec_sections import Objective
from service.store.early_stopping.milestones import milestones_changed_after
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.sql.process_caches import cache_epoch
from service.store.tables import ExperimentRow, TrialRow

MAX_RESULTS = 256
_Key = tuple[str, str, Evaluator, Measure, int, int, int]


@dataclass(frozen=True)
class ExperimentImportance:
    """`trial_count` trials could be judged by the `measure`; `importance.used_count` of them were evaluated."""

    metric: str
    evaluator: Evaluator
    measure: Measure
    trial_count: int
    importance: Importance


@dataclass(frozen=True)
class ImportanceQuestion:
    """What the importance of an experiment's parameters is computed from, by `importance_of`."""

    key: _Key
    trial_count: int
    space: Space
    direction: Direction
    trials: Sequence[Measured]

    @property
    def evaluator(self) -> Evaluator:
        return self.key[2]

    @property
    def measure(self) -> Measure:
        return self.key[3]


class ImportanceCache:
    """A result stays valid until another trial can be judged, or the database may have lost commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._results: MutableMapping[_Key, ExperimentImportance] = LRUCache(MAX_RESULTS)
        self._lock = threading.Lock()

    def find(
        self, experiment: str, metric: str | None, evaluator: Evaluator
    ) -> ExperimentImportance | ImportanceQuestion:
        """For the objective `metric`, by default the first one. Raises NotFound, Invalid."""
        with self._database.read() as session:
            row = experiment_named(session, experiment)
            spec = spec_of(row)
            objective = _objective(spec, metric)
            measure = measure_of(session, row.id, spec)
            key, count = _version(session, row, objective.metric, evaluator, measure)
            with self._lock:
                cached = self._results.get(key)
            if cached is not None:
                return cached
            trials = _trials(session, row, evaluator, measure)
            reached = milestones_changed_after(session, row.id, 0) if measure == "curve_score" else []
        if measure == "curve_score":
            scores = curve_scores(spec, trials, reached)
            return ImportanceQuestion(key, count, spec.space, "maximize", _measured(trials, scores))
        values = {trial.number: known_values(spec, trial).get(objective.metric) for trial in trials}
        return ImportanceQuestion(key, count, spec.space, objective.direction, _measured(trials, values))

    def store(self, question: ImportanceQuestion, importance: Importance) -> ExperimentImportance:
        _, metric, evaluator, measure, *_ = question.key
        found = ExperimentImportance(metric, evaluator, measure, question.trial_count, importance)
        with self._lock:
            self._results[question.key] = found
        return found


def _objective(spec: ExperimentSpec, metric: str | None) -> Objective:
    if metric is None:
        return spec.objective
    for objective in spec.objectives:
        if objective.metric == metric:
            return objective
    known = ", ".join(repr(one.metric) for one in spec.objectives)
    raise Invalid([Mistake(("metric",), f"must be an objective of the experiment, which has {known}; not {metric!r}")])


def _version(
    session: Session, experiment: ExperimentRow, metric: str, evaluator: Evaluator, measure: Measure
) -> tuple[_Key, int]:
    """The cache's key, which changes when another trial can be judged, and the count of such trials."""
    epoch = cache_epoch(session)
    query = select(func.count(), func.coalesce(func.max(TrialRow.changed_at_event), 0))
    count, newest = session.execute(query.where(TrialRow.experiment_id == experiment.id, may_be_judged(measure))).one()
    return (experiment.id, metric, evaluator, measure, newest, experiment.spec_changed_at_event, epoch), count


def _trials(session: Session, experiment: ExperimentRow, evaluator: Evaluator, measure: Measure) -> Sequence[TrialRow]:
    own = TrialRow.experiment_id == experiment.id
    numbers = session.scalars(select(TrialRow.number).where(own, may_be_judged(measure))).all()
    return session.scalars(select(TrialRow).where(own, TrialRow.number.in_(sampled(numbers, evaluator)))).all()


def _measured(trials: Sequence[TrialRow], values: Mapping[int, float | None]) -> list[Measured]:
    known = [(trial, values.get(trial.number)) for trial in trials]
    return [Measured(trial.number, trial.params, value) for trial, value in known if value is not None]
