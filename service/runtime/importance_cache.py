"""Caches how much each parameter of an experiment matters, by its completed trials."""

import threading
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from search.analysis.importance import Evaluator, Importance, Measured, importance_of, sampled
from search.mistakes import Mistake
from service.domain.statuses import TrialStatus
from service.errors import Invalid
from service.runtime.objective_values import newest_values
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec, Objective
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow

MAX_RESULTS = 256
_Key = tuple[str, str, Evaluator, int, int]


@dataclass(frozen=True)
class ExperimentImportance:
    """`trial_count` trials have completed; `importance.used_count` of them were evaluated."""

    metric: str
    evaluator: Evaluator
    trial_count: int
    importance: Importance


class ImportanceCache:
    """A result stays valid until another trial completes. One is computed at a time, because each uses a whole CPU."""

    def __init__(self) -> None:
        self._results: MutableMapping[_Key, ExperimentImportance] = LRUCache(MAX_RESULTS)
        self._lock = threading.Lock()

    def importance(
        self, database: Database, experiment: str, metric: str | None, evaluator: Evaluator
    ) -> ExperimentImportance:
        """For the objective `metric`, by default the first one. Raises NotFound, Invalid."""
        with self._lock:
            with database.read() as session:
                row = experiment_named(session, experiment)
                spec = spec_of(row)
                objective = _objective(spec, metric)
                key, count = _version(session, row, objective.metric, evaluator)
                cached = self._results.get(key)
                trials = [] if cached else _trials(session, row, spec, objective, evaluator)
            if cached is not None:
                return cached
            importance = importance_of(spec.space, objective.direction, trials, evaluator)
            result = self._results[key] = ExperimentImportance(objective.metric, evaluator, count, importance)
            return result


def _objective(spec: ExperimentSpec, metric: str | None) -> Objective:
    if metric is None:
        return spec.objective
    for objective in spec.objectives:
        if objective.metric == metric:
            return objective
    known = ", ".join(repr(one.metric) for one in spec.objectives)
    raise Invalid([Mistake(("metric",), f"must be an objective of the experiment, which has {known}; not {metric!r}")])


def _version(session: Session, experiment: ExperimentRow, metric: str, evaluator: Evaluator) -> tuple[_Key, int]:
    """The cache's key, which changes when a trial completes, and the count of completed trials."""
    query = select(func.count(), func.coalesce(func.max(TrialRow.changed_at_event), 0))
    count, newest = session.execute(
        query.where(TrialRow.experiment_id == experiment.id, TrialRow.status == TrialStatus.COMPLETED)
    ).one()
    return (experiment.id, metric, evaluator, newest, experiment.spec_changed_at_event), count


def _trials(
    session: Session, experiment: ExperimentRow, spec: ExperimentSpec, objective: Objective, evaluator: Evaluator
) -> Sequence[Measured]:
    own = TrialRow.experiment_id == experiment.id
    numbers = session.scalars(select(TrialRow.number).where(own, TrialRow.status == TrialStatus.COMPLETED)).all()
    chosen = session.scalars(select(TrialRow).where(own, TrialRow.number.in_(sampled(numbers, evaluator)))).all()
    values = [(trial, newest_values(spec, trial).get(objective.metric)) for trial in chosen]
    return [Measured(trial.number, trial.params, value) for trial, value in values if value is not None]
