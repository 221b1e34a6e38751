"""The values of a trial's objectives and constraints, in the terms of its spec: the newest ones, or the best one."""

from service.specification.models import ExperimentSpec
from service.store.tables import TrialRow
from service.store.trials.measured_trial import MeasuredTrial


def known_values(spec: ExperimentSpec, trial: MeasuredTrial) -> dict[str, float]:
    """Return the metrics of objectives and constraints that have been reported."""
    return {**(trial.values or {}), **({} if trial.value is None else {spec.objective.metric: trial.value})}


def missing_objectives(spec: ExperimentSpec, trial: TrialRow) -> list[str]:
    known = known_values(spec, trial)
    return [one.metric for one in spec.objectives if one.metric not in known]


def targets_reached(spec: ExperimentSpec, trial: TrialRow) -> str | None:
    """Return a sentence if the trial is feasible and has reached all targets of the spec, else None.

    Only when it has reported all objectives, also those without a target: it ends then, and would have no result.
    """
    wanted = [one for one in spec.objectives if one.target is not None]
    if not wanted or missing_objectives(spec, trial) or (spec.constraints and trial.violation != 0):
        return None
    known = known_values(spec, trial)
    if not all(one.is_reached_by(known[one.metric]) for one in wanted):
        return None
    return " and ".join(f"{one.metric} {known[one.metric]:g} reached the target {one.target:g}" for one in wanted)


def broken_constraints(spec: ExperimentSpec, trial: TrialRow) -> str | None:
    """Return how an ended trial violates its constraints; None if it is feasible."""
    known = known_values(spec, trial)
    broken = [one.broken_by(known.get(one.metric)) for one in spec.constraints]
    sentences = [sentence for sentence in broken if sentence]
    return "; ".join(sentences) or None
