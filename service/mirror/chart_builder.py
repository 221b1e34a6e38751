"""From an experiment's rows to the sketch of its pictures."""

import math
from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from search.analysis.pareto import pareto_front
from search.problem import sign_of
from service.domain.statuses import TrialStatus
from service.mirror.chart_data import MOST_CURVES, MOST_TRIALS, Finished, Sketch, thinned, thinned_curve
from service.specification.models import ExperimentSpec
from service.store.charts import curves_of, shown_trials
from service.store.tables import ExperimentRow, TrialRow
from service.store.trial_values import objective_values


def sketch_of(session: Session, experiment: ExperimentRow, spec: ExperimentSpec) -> Sketch:
    """Of many trials a part, with those that must not be missing: the records, and the Pareto front."""
    rows = shown_trials(session, experiment.id)
    chosen = {
        *thinned([row.number for row in rows], MOST_TRIALS),
        *_records(spec, rows),
        *_front(experiment, spec, rows),
    }
    with_curves = _with_curves(spec, rows)
    curves = curves_of(session, [row.id for row in rows if row.number in with_curves])
    return Sketch(
        space=experiment.spec["space"],
        metrics=[one.metric for one in spec.objectives],
        directions=[one.direction for one in spec.objectives],
        curve_metric=spec.objective.metric,
        constrained=bool(spec.constraints),
        trials=[
            _finished(experiment, row, curves.get(row.id, {}))
            for row in rows
            if row.number in chosen or row.id in curves
        ],
    )


def _records(spec: ExperimentSpec, rows: Sequence[TrialRow]) -> Iterator[int]:
    """The trials that were the best by the first objective when they came."""
    sign = sign_of(spec.objective.direction)
    best = math.inf
    for row in rows:
        if row.status == TrialStatus.COMPLETED and row.value is not None and sign * row.value < best:
            best = sign * row.value
            yield row.number


def _front(experiment: ExperimentRow, spec: ExperimentSpec, rows: Sequence[TrialRow]) -> list[int]:
    measured = [
        (row.number, values)
        for row in rows
        if row.status == TrialStatus.COMPLETED and (values := _whole(experiment, row)) and not row.violation
    ]
    places = pareto_front([values for _, values in measured], [one.direction for one in spec.objectives])
    return [measured[place][0] for place in places]


def _whole(experiment: ExperimentRow, row: TrialRow) -> list[float] | None:
    """Its values, once all objectives are known."""
    known = [value for value in objective_values(experiment, row) or [] if value is not None]
    return known if len(known) == len(experiment.spec["objectives"]) else None


def _best(spec: ExperimentSpec, rows: Sequence[TrialRow], count: int = 5) -> list[int]:
    sign = sign_of(spec.objective.direction)
    ranked = sorted((sign * row.value, row.number) for row in rows if row.value is not None)
    return [number for _, number in ranked[:count]]


def _with_curves(spec: ExperimentSpec, rows: Sequence[TrialRow]) -> set[int]:
    best = _best(spec, rows)
    return {*best, *thinned([row.number for row in rows], MOST_CURVES - len(best))}


def _finished(experiment: ExperimentRow, row: TrialRow, curve: dict[int, float]) -> Finished:
    return Finished(
        number=row.number,
        completed=row.status == TrialStatus.COMPLETED,
        params=row.params,
        values=_whole(experiment, row),
        violation=row.violation,
        curve=thinned_curve(curve),
        stopped_early=row.status == TrialStatus.PRUNED,
    )
