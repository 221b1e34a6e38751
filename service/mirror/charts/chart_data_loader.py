"""Loads what an experiment's charts show from the database, and chooses the trials for them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from search.pareto import pareto_front
from search.problem import sign_of
from service.mirror.charts.chart_data import MAX_CURVES, MAX_TRIALS, ChartData, ChartTrial, thinned, thinned_curve
from service.runtime.observations.curve_scores import CUT_SHORT, Measure, curve_scores, may_be_judged, measure_of
from service.specification.models import ExperimentSpec
from service.store.charts import curves_of, shown_trials
from service.store.early_stopping.milestones import ReachedMilestone, milestones_changed_after
from service.store.tables import ExperimentRow
from service.store.trials.ended_trials import ran_to_completion
from service.store.trials.measured_trial import TrialMeasurements
from service.store.trials.trial_values import objective_values


@dataclass(frozen=True)
class ChartRows:
    """All trials that charts may show, the learning curves of some by id, and all milestones if trials are scored."""

    experiment: ExperimentRow
    spec: ExperimentSpec
    measure: Measure
    trials: Sequence[TrialMeasurements]
    curves: Mapping[str, dict[int, float]]
    milestones: Sequence[ReachedMilestone]


def load_chart_rows(session: Session, experiment: ExperimentRow, spec: ExperimentSpec) -> ChartRows:
    measure = measure_of(session, experiment.id, spec)
    rows = shown_trials(session, experiment.id, may_be_judged(measure))
    milestones = milestones_changed_after(session, experiment.id, 0) if measure == "curve_score" else []
    with_curves = _trials_with_curves(spec, rows)
    curves = curves_of(session, [row.id for row in rows if row.number in with_curves])
    return ChartRows(experiment, spec, measure, rows, curves, milestones)


def chart_data(loaded: ChartRows) -> ChartData:
    """Return MAX_TRIALS trials, and those that no chart may lack: the successive best ones and the Pareto front."""
    experiment, spec, rows, curves = loaded.experiment, loaded.spec, loaded.trials, loaded.curves
    scores = curve_scores(spec, rows, loaded.milestones) if loaded.measure == "curve_score" else {}
    chosen = {
        *thinned([row.number for row in rows], MAX_TRIALS),
        *_successive_best_trials(spec, rows),
        *_front(experiment, spec, rows),
    }
    return ChartData(
        space=experiment.spec["space"],
        metrics=[one.metric for one in spec.objectives],
        directions=[one.direction for one in spec.objectives],
        curve_metric=spec.objective.metric,
        constrained=bool(spec.constraints),
        by_score=loaded.measure == "curve_score",
        trials=[
            _chart_trial(experiment, row, curves.get(row.id, {}), scores.get(row.number))
            for row in rows
            if row.number in chosen or row.id in curves
        ],
    )


def _successive_best_trials(spec: ExperimentSpec, rows: Sequence[TrialMeasurements]) -> Iterator[int]:
    """Yield the numbers of the trials that were the best so far, by the first objective."""
    sign = sign_of(spec.objective.direction)
    best = math.inf
    for row in rows:
        if ran_to_completion(row) and row.value is not None and sign * row.value < best:
            best = sign * row.value
            yield row.number


def _front(experiment: ExperimentRow, spec: ExperimentSpec, rows: Sequence[TrialMeasurements]) -> list[int]:
    measured = [
        (row.number, values)
        for row in rows
        if ran_to_completion(row) and (values := _complete_values(experiment, row)) and not row.violation
    ]
    indexes = pareto_front([values for _, values in measured], [one.direction for one in spec.objectives])
    return [measured[index][0] for index in indexes]


def _complete_values(experiment: ExperimentRow, row: TrialMeasurements) -> list[float] | None:
    """Return the trial's values; None unless all objectives are known."""
    known = [value for value in objective_values(experiment, row).values() if value is not None]
    return known if len(known) == len(experiment.spec["objectives"]) else None


def _best_trials(spec: ExperimentSpec, rows: Sequence[TrialMeasurements], count: int = 5) -> list[int]:
    sign = sign_of(spec.objective.direction)
    ranked = sorted((sign * row.value, row.number) for row in rows if row.value is not None)
    return [number for _, number in ranked[:count]]


def _trials_with_curves(spec: ExperimentSpec, rows: Sequence[TrialMeasurements]) -> set[int]:
    best = _best_trials(spec, rows)
    return {*best, *thinned([row.number for row in rows], MAX_CURVES - len(best))}


def _chart_trial(
    experiment: ExperimentRow, row: TrialMeasurements, curve: dict[int, float], score: float | None
) -> ChartTrial:
    return ChartTrial(
        number=row.number,
        completed=ran_to_completion(row),
        params=row.params,
        values=_complete_values(experiment, row),
        violation=row.violation,
        curve=thinned_curve(curve),
        stopped_early=row.status in CUT_SHORT,
        score=score,
    )
