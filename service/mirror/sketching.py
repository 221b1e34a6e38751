"""From an experiment's rows to the sketch of its pictures."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.mirror.sketches import MOST_CURVES, MOST_TRIALS, Finished, Sketch, thinned, thinned_curve
from service.spec.models import ExperimentSpec
from service.store.pictures import curves_of, shown_trials
from service.store.tables import ExperimentRow, TrialRow
from service.store.values import objective_values


def sketch_of(session: Session, experiment: ExperimentRow) -> Sketch:
    spec = ExperimentSpec.model_validate(experiment.spec)
    rows = shown_trials(session, experiment.id)
    chosen = set(thinned([row.number for row in rows], MOST_TRIALS)) | set(_best(spec, rows))
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


def _best(spec: ExperimentSpec, rows: Sequence[TrialRow], count: int = 5) -> list[int]:
    sign = 1 if spec.objective.direction == "minimize" else -1
    ranked = sorted((sign * row.value, row.number) for row in rows if row.value is not None)
    return [number for _, number in ranked[:count]]


def _with_curves(spec: ExperimentSpec, rows: Sequence[TrialRow]) -> set[int]:
    best = _best(spec, rows)
    return {*best, *thinned([row.number for row in rows], MOST_CURVES - len(best))}


def _finished(experiment: ExperimentRow, row: TrialRow, curve: dict[int, float]) -> Finished:
    values = [value for value in objective_values(experiment, row) or [] if value is not None]
    return Finished(
        number=row.number,
        completed=row.status == TrialStatus.COMPLETED,
        params=row.params,
        values=values if len(values) == len(experiment.spec["objectives"]) else None,
        violation=row.violation,
        curve=thinned_curve(curve),
        stopped_early=row.status == TrialStatus.PRUNED,
    )
