"""What the finished trials of an experiment say of its parameters."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from search.analysis.importance import Evaluator, Importance, Measured, importance_of, sampled
from service.domain.statuses import TrialStatus
from service.errors import Invalid, Mistake
from service.runtime.objective_values import newest_values
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec, Objective
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, TrialRow

MAX_ANSWERS = 256
_Key = tuple[str, str, Evaluator, int, int]


@dataclass(frozen=True)
class Judged:
    """`trial_count` trials have completed; `importance.used_count` says from how many of them it was made."""

    metric: str
    evaluator: Evaluator
    trial_count: int
    importance: Importance


class Analysis:
    """Answers stay as long as no further trial completes. One is computed at a time: it takes a processor whole."""

    def __init__(self) -> None:
        self._answers: OrderedDict[_Key, Judged] = OrderedDict()
        self._guard = threading.Lock()

    def importance(self, database: Database, experiment: str, metric: str | None, evaluator: Evaluator) -> Judged:
        """Of the objective `metric`, the first by default. Raises NotFound, Invalid."""
        with self._guard:
            with database.read() as session:
                row = experiment_named(session, experiment)
                spec = spec_of(row)
                objective = _objective(spec, metric)
                key, count = _as_of(session, row, objective.metric, evaluator)
                known = self._answers.get(key)
                trials = [] if known else _trials(session, row, spec, objective, evaluator)
            return known or self._keep(key, _judged(spec, objective, evaluator, count, trials))

    def _keep(self, key: _Key, answer: Judged) -> Judged:
        self._answers[key] = answer
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return answer


def _objective(spec: ExperimentSpec, metric: str | None) -> Objective:
    if metric is None:
        return spec.objective
    for objective in spec.objectives:
        if objective.metric == metric:
            return objective
    known = ", ".join(repr(one.metric) for one in spec.objectives)
    raise Invalid([Mistake("metric", f"must be an objective of the experiment, which has {known}; not {metric!r}")])


def _as_of(session: Session, experiment: ExperimentRow, metric: str, evaluator: Evaluator) -> tuple[_Key, int]:
    query = select(func.count(), func.coalesce(func.max(TrialRow.changed_at_event), 0))
    count, newest = session.execute(
        query.where(TrialRow.experiment_id == experiment.id, TrialRow.status == TrialStatus.COMPLETED)
    ).one()
    return (experiment.id, metric, evaluator, newest, experiment.spec_changed_at_event), count


def _trials(
    session: Session, experiment: ExperimentRow, spec: ExperimentSpec, objective: Objective, evaluator: Evaluator
) -> Sequence[Measured]:
    its_own = TrialRow.experiment_id == experiment.id
    numbers = session.scalars(select(TrialRow.number).where(its_own, TrialRow.status == TrialStatus.COMPLETED)).all()
    chosen = session.scalars(select(TrialRow).where(its_own, TrialRow.number.in_(sampled(numbers, evaluator)))).all()
    values = [(trial, newest_values(spec, trial).get(objective.metric)) for trial in chosen]
    return [Measured(trial.number, trial.params, value) for trial, value in values if value is not None]


def _judged(
    spec: ExperimentSpec, objective: Objective, evaluator: Evaluator, count: int, trials: Sequence[Measured]
) -> Judged:
    importance = importance_of(spec.space, objective.direction, trials, evaluator)
    return Judged(objective.metric, evaluator, count, importance)
