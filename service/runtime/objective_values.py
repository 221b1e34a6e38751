"""What a report says of a trial's objectives and constraints: the newest values count."""

import reprlib
from collections.abc import Mapping
from typing import Any

from search.constraints import total_violation
from search.early_stopping.compared_metric import number_in
from service.domain.statuses import StopCause
from service.operations.trials.stop_request import ask_to_stop
from service.specification.models import ExperimentSpec
from service.store.sql.write_session import change_later
from service.store.tables import TrialRow


def take_values(spec: ExperimentSpec, trial: TrialRow, metrics: Mapping[str, Any]) -> bool:
    """Whether there was any of them. An objective that is no finite number ends the trial, which has diverged.

    A constraint's metric that is no finite number is not known from then on: the trial is infeasible unless it
    reports another.
    """
    names = {one.metric for one in spec.objectives} | {one.metric for one in spec.constraints}
    reported = {name: number_in(metrics, name) for name in names if name in metrics}
    for objective in spec.objectives:
        if objective.metric in reported and reported[objective.metric] is None:
            told = reprlib.repr(metrics[objective.metric])
            ask_to_stop(trial, StopCause.DIVERGED, f"diverged: {objective.metric} is {told}, not a finite number")
    if not reported:
        return False
    first = reported.get(spec.objective.metric)
    if first is not None:
        change_later(trial, value=first)
    if len(names) > 1:
        lost = {one.metric for one in spec.constraints if one.metric in reported and reported[one.metric] is None}
        newest = {**(trial.values or {}), **{name: value for name, value in reported.items() if value is not None}}
        trial.values = {name: value for name, value in newest.items() if name not in lost}
        trial.violation = _violation(spec, trial.values)
    return True


def newest_values(spec: ExperimentSpec, trial: TrialRow) -> dict[str, float]:
    """Of the objectives and the constraints' metrics, those that were reported."""
    return {**(trial.values or {}), **({} if trial.value is None else {spec.objective.metric: trial.value})}


def missing_objectives(spec: ExperimentSpec, trial: TrialRow) -> list[str]:
    known = newest_values(spec, trial)
    return [one.metric for one in spec.objectives if one.metric not in known]


def targets_reached(spec: ExperimentSpec, trial: TrialRow) -> str | None:
    """The sentence for a feasible trial that has reached every target there is; None for any other."""
    wanted = [one for one in spec.objectives if one.target is not None]
    known = newest_values(spec, trial)
    if not wanted or (spec.constraints and trial.violation != 0):
        return None
    if not all(one.metric in known and one.reached_by(known[one.metric]) for one in wanted):
        return None
    return " and ".join(f"{one.metric} {known[one.metric]:g} reached the target {one.target:g}" for one in wanted)


def broken_constraints(spec: ExperimentSpec, trial: TrialRow) -> str | None:
    """How the trial, as it has ended, breaks them; None when it does not."""
    known = newest_values(spec, trial)
    broken = [one.broken_by(known.get(one.metric)) for one in spec.constraints]
    sentences = [sentence for sentence in broken if sentence]
    return "; ".join(sentences) or None


def _violation(spec: ExperimentSpec, known: Mapping[str, float]) -> float | None:
    if not spec.constraints or any(one.metric not in known for one in spec.constraints):
        return None
    return total_violation(spec.constraints, known)
