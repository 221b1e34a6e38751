"""The values of objectives and constraints in a trial's row, by the raw spec of its experiment."""

from collections.abc import Mapping

from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.measured_trial import MeasuredTrial


def objective_names(experiment: ExperimentRow) -> list[str]:
    return [one["metric"] for one in experiment.spec["objectives"]]


def takes_best(experiment: ExperimentRow) -> bool:
    """Whether the best report of the only objective gives a trial its value."""
    return any(one.get("report") == "best" for one in experiment.spec["objectives"])


def constraint_names(experiment: ExperimentRow) -> list[str]:
    return [one["metric"] for one in experiment.spec.get("constraints") or []]


def objective_values(experiment: ExperimentRow, trial: MeasuredTrial) -> dict[str, float | None]:
    """The value of each objective by its metric, in the order of the spec: the newest, or the best one."""
    names = objective_names(experiment)
    known = {**(trial.values or {}), names[0]: trial.value}
    return {name: known.get(name) for name in names}


def only_value(values: Mapping[str, float | None]) -> float | None:
    """The value of an only objective; None with several."""
    return next(iter(values.values())) if len(values) == 1 else None


def constraint_values(experiment: ExperimentRow, trial: TrialRow) -> dict[str, float | None] | None:
    """The newest value of each constraint's metric; None without constraints."""
    known = trial.values or {}
    return {name: known.get(name) for name in constraint_names(experiment)} or None


def is_feasible(experiment: ExperimentRow, trial: TrialRow) -> bool | None:
    """None without constraints, and while a running trial lacks a metric; an ended trial without one is infeasible."""
    if not constraint_names(experiment):
        return None
    if trial.violation is None:
        return None if trial.ended_at is None else False
    return trial.violation == 0
