"""Takes the newest values of a trial's objectives and constraints from a report."""

import reprlib
from collections.abc import Mapping
from typing import Any

from search.constraints import total_violation
from search.early_stopping.compared_metric import number_in
from service.domain.statuses import StopCause
from service.operations.transitions import request_stop
from service.specification.models import ExperimentSpec
from service.store.sql.write_session import change_later
from service.store.tables import TrialRow


def update_objectives(spec: ExperimentSpec, trial: TrialRow, metrics: Mapping[str, Any]) -> bool:
    """Return whether the report has any of the objectives' and constraints' metrics.

    An objective that is not a finite number stops the trial as diverged. A constraint's metric that is not a finite
    number becomes unknown, and the trial infeasible, until a later report has a number.
    """
    names = {one.metric for one in spec.objectives} | {one.metric for one in spec.constraints}
    reported = {name: number_in(metrics, name) for name in names if name in metrics}
    for objective in spec.objectives:
        if objective.metric in reported and reported[objective.metric] is None:
            shown = reprlib.repr(metrics[objective.metric])
            request_stop(trial, StopCause.DIVERGED, f"diverged: {objective.metric} is {shown}, not a finite number")
    first = reported.get(spec.objective.metric)
    if first is not None:
        change_later(trial, value=first)
    if reported and len(names) > 1:
        _update_values(spec, trial, reported)
    return bool(reported)


def _update_values(spec: ExperimentSpec, trial: TrialRow, reported: Mapping[str, float | None]) -> None:
    unknown = {one.metric for one in spec.constraints if one.metric in reported and reported[one.metric] is None}
    newest = {**(trial.values or {}), **{name: value for name, value in reported.items() if value is not None}}
    values = {name: value for name, value in newest.items() if name not in unknown}
    is_complete = all(one.metric in values for one in spec.constraints)
    trial.values = values
    trial.violation = total_violation(spec.constraints, values) if spec.constraints and is_complete else None
