"""Parameters and observations converted to Optuna's distributions and frozen trials, and values converted back."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import JsonValue

from search.problem import Observation, Problem
from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter, coded, on_step
from search.space.space import Space

_ANY_TIME = dt.datetime(2000, 1, 1)  # noqa: DTZ001 (Optuna's times have no zone; no sampler reads this one)

_DIVERGED = "diverged"

_STATES = {
    "running": TrialState.RUNNING,
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def frozen_trial_of(
    problem: Problem, observation: Observation, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """The trial as Optuna's samplers should see it; `distributions` are those of the problem's space.

    A trial that diverged counts as the worst: pruned, without a value. (As completed with the worst value seen so far
    it would still rank before every pruned trial.) Under constraints it is infeasible, whatever it reported of them
    before; as feasible it would rank before every infeasible completed trial. A trial that a user stopped counts as
    pruned if it has reported; otherwise as failed, and nothing is learned from it. Optuna ranks pruned trials only for
    a single objective; with several they all come last.
    """
    state = _STATES[observation.status]
    if observation.status == "stopped" and observation.last_value is None:
        state = TrialState.FAIL
    return frozen_trial(
        observation.number,
        state,
        params={name: coded(problem.space.root[name], value) for name, value in observation.params.items()},
        distributions={name: distributions[name] for name in observation.params},
        values=[float(value) for value in observation.values or ()] if state is TrialState.COMPLETE else None,
        curve=_curve(observation) if state is TrialState.PRUNED and len(problem.directions) == 1 else {},
        constraints=_constraints(problem, observation),
        diverged=observation.status == "diverged",
    )


def is_diverged(trial: FrozenTrial) -> bool:
    return _DIVERGED in trial.user_attrs


def frozen_trial(
    number: int,
    state: TrialState,
    *,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    values: list[float] | None = None,
    curve: Mapping[int, float] | None = None,
    constraints: Sequence[float] | None = None,
    diverged: bool = False,
) -> FrozenTrial:
    trial = FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=None,
        values=values,
        datetime_start=_ANY_TIME,
        datetime_complete=_ANY_TIME if state.is_finished() else None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs={_DIVERGED: True} if diverged else {},
        system_attrs={},
        intermediate_values=dict(curve or {}),
    )
    for index, violation in enumerate(constraints or ()):
        trial.set_constraint(str(index), violation)
    return trial


def distribution_of(parameter: Parameter) -> FloatDistribution | IntDistribution | CategoricalDistribution:
    """A choice is represented by its index, because Optuna does not distinguish 1 from true."""
    match parameter:
        case CategoricalParameter():
            return CategoricalDistribution(range(len(parameter.choices)))
        case IntParameter():
            return IntDistribution(parameter.low, parameter.values()[-1], log=parameter.log, step=parameter.step)
        case FloatParameter():
            values = parameter.values()
            high = values[-1] if values else parameter.high
            return FloatDistribution(parameter.low, high, log=parameter.log, step=parameter.step)


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """The distributions by name, in alphabetical order: the order in which Optuna's samplers draw."""
    return {name: distribution_of(space.root[name]) for name in sorted(space.root)}


def joint_distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """The distributions of parameters that can be sampled jointly: they always exist and have several values."""
    distributions = distributions_of(space)
    return {name: one for name, one in distributions.items() if not one.single() and not space.root[name].when}


def joint_numbers_of(space: Space) -> dict[str, BaseDistribution]:
    """The numeric ones of `joint_distributions_of`."""
    joint = joint_distributions_of(space)
    return {name: one for name, one in joint.items() if not isinstance(one, CategoricalDistribution)}


def from_optuna(parameter: Parameter, value: Any) -> JsonValue:
    if isinstance(parameter, CategoricalParameter):
        return parameter.choices[int(value)]
    if isinstance(parameter, IntParameter):
        # For integers that a float cannot represent exactly, Optuna's arithmetic misses the steps.
        return parameter.values()[round(Fraction(int(value) - parameter.low, parameter.step))]
    return on_step(parameter, value)  # in decimal: 0.3, where Optuna's sum is 0.30000000000000004


def _constraints(problem: Problem, observation: Observation) -> Sequence[float] | None:
    known = observation.constraints
    if observation.status == "diverged" and problem.constrained:
        return [math.inf] * len(known or (math.inf,))
    return known


def _curve(observation: Observation) -> dict[int, float]:
    """Only the newest value: samplers do not look at the others."""
    if observation.status == "diverged" or observation.last_step is None or observation.last_value is None:
        return {}
    return {observation.last_step: observation.last_value}
