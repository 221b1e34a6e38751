"""A report gives its trial the values of objectives and constraints: the newest ones, or the best one."""

import reprlib
from collections.abc import Mapping
from types import NoneType
from typing import Any

from search.constraints import total_violation
from search.problem import sign_of
from search.reported_numbers import is_number, number_in
from service.domain.statuses import StopCause
from service.operations.attempts.leases import LeasedAttempt
from service.operations.transitions import request_stop
from service.runtime.observations.targets_and_constraints import known_values
from service.specification.models import ExperimentSpec
from service.store.reports import best_report_of
from service.store.sql.bulk_writes import change_later
from service.store.tables import ReportRow, TrialRow
from trainer.wire import storable_float

_TYPE_NAMES: Mapping[type, str] = {list: "a list", NoneType: "null"}


def take_values(leased: LeasedAttempt, metrics: Mapping[str, Any], step: int) -> bool:
    """Take the newest values, or the best one. Return whether the report has a metric of objectives or constraints.

    An objective that is NaN or infinite stops the trial as diverged, and one that is no number as an error of its code.
    A constraint's metric that is not a finite number becomes unknown, and the trial infeasible, until a later report
    has a number.
    """
    spec, trial, names = leased.spec, leased.trial, leased.spec.valued_metrics
    reported = {name: number_in(metrics, name) for name in names if name in metrics}
    for objective in spec.objectives:
        if objective.metric in reported and reported[objective.metric] is None:
            request_stop(trial, *_why_no_value(objective.metric, metrics[objective.metric], step))
    first = reported.get(spec.objective.metric)
    if first is not None and spec.objective.takes_best:
        _take_if_best(leased, first, step)
    elif first is not None:
        change_later(trial, value=first)
    if reported and (len(names) > 1 or spec.constraints):
        _update_values(spec, trial, reported)
    return bool(reported)


def newer_values(leased: LeasedAttempt, metrics: Mapping[str, Any], step: int) -> Mapping[str, Any]:
    """The metrics that become the trial's newest values.

    An attempt that trains again up to a step that an earlier one has reached brings no newer values before it.
    """
    trial, last = leased.trial, leased.trial.last_step
    if last is None or step >= last:
        return metrics
    reached = leased.session.get(ReportRow, (trial.id, last))
    if reached is None or reached.attempt == leased.attempt.number:
        return metrics
    known, objectives = known_values(leased.spec, trial), {one.metric for one in leased.spec.objectives}
    diverged = {name for name in objectives if number_in(metrics, name) is None}
    return {name: value for name, value in metrics.items() if name not in known or name in diverged}


def _take_if_best(leased: LeasedAttempt, value: float, step: int) -> None:
    """Of values that tie, the one of the first step is the best.

    A further report of the best step may have replaced its value by a worse one. A value without a step is not of this
    version: the reports tell the step.
    """
    trial, sign, best_step = leased.trial, sign_of(leased.spec.objective.direction), leased.trial.best_step
    if trial.value is None or (best_step is not None and (sign * value, step) < (sign * trial.value, best_step)):
        change_later(trial, value=value, best_step=step)
    elif best_step in (None, step):
        best, best_step = best_report_of(leased.session, trial.id, leased.spec.objective.direction)
        change_later(trial, value=best, best_step=best_step)


def _update_values(spec: ExperimentSpec, trial: TrialRow, reported: Mapping[str, float | None]) -> None:
    unknown = {one.metric for one in spec.constraints if one.metric in reported and reported[one.metric] is None}
    newest = {**(trial.values or {}), **{name: value for name, value in reported.items() if value is not None}}
    values = {name: value for name, value in newest.items() if name not in unknown}
    is_complete = all(one.metric in values for one in spec.constraints)
    trial.values = values
    trial.violation = total_violation(spec.constraints, values) if spec.constraints and is_complete else None


def _why_no_value(metric: str, given: Any, step: int) -> tuple[StopCause, str]:
    """Why an objective that is not a finite number stops the trial."""
    if is_number(given):
        return StopCause.DIVERGED, f"diverged: {metric} is {_shown_number(given)} at step {step}"
    what = f"the text {reprlib.repr(given)}" if isinstance(given, str) else _TYPE_NAMES.get(type(given), "an object")
    return StopCause.BAD_OBJECTIVE, f"the objective {metric} must be a number; the trial reported {what} at step {step}"


def _shown_number(given: float | str) -> float | str:
    try:
        return storable_float(float(given))
    except OverflowError:
        return "a whole number that no float can be"
