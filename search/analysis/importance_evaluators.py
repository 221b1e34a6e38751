"""Optuna's importance evaluators on a space's configurations."""

import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from search.problem import Direction
from search.samplers.optuna.conversion import distributions_of, frozen_trial
from search.samplers.optuna.frozen_study import frozen_study
from search.space.parameters import CategoricalParameter, coded
from search.space.space import Params, Space
from search.space.unit_scale import to_unit
from search.thread_safe_import import import_modules

Evaluator = Literal["ped_anova", "fanova"]
Trials = Sequence[tuple[Params, float]]
"""Configurations and their values."""

TREE_COUNT = 16
LEAST_SPREAD = 1e-3
"""Of values whose largest size is about 1. With less of it, the mean is subtracted."""

TARGET_SHARE, MIN_TARGET_TRIALS = 0.1, 5
"""PED-ANOVA asks what the best share of the trials have in common, and Optuna's documentation prefers at least so many
(`PedAnovaImportanceEvaluator`): of one or two trials, the values of a parameter that few trials have agree by chance.
"""

LEAST_RANGE = 1e-4
"""The least part of a parameter's range that the trials' values span. If they span less, they are spread over all of
it, because scikit-learn's trees do not tell features apart that differ by less than 1e-7.
"""

# The service's log does not need to say that few trials had a conditional parameter.
warnings.filterwarnings("ignore", message="Some regimes for parameter|Target and region quantiles")


def importances(space: Space, direction: Direction, trials: Trials, evaluator: Evaluator) -> dict[str, float]:
    """The importance of each parameter that the evaluator can judge; the sum is 1, or 0 if none varied.

    The trials are configurations of the space and their values, more than `MIN_TARGET_TRIALS`.
    """
    judged = _judged([set(params) for params, _ in trials], evaluator)
    varied = {name for name in judged if len(set(_positions(space, trials, name))) > 1}
    if not varied:
        return dict.fromkeys(judged, 0.0)
    found = _importances(space, direction, [(_only(varied, params), value) for params, value in trials], evaluator)
    return {name: found.get(name, 0.0) for name in judged}


def _judged(names: Sequence[set[str]], evaluator: Evaluator) -> set[str]:
    """Returns those of the trials' parameters that can be judged; fANOVA judges those that all trials have."""
    return set.intersection(*names) if evaluator == "fanova" else set.union(*names)


def _positions(space: Space, trials: Trials, name: str) -> list[float]:
    """The indices of choices; of numbers, where they are on the parameter's own scale from 0 to 1."""
    parameter, values = space.root[name], [params[name] for params, _ in trials if name in params]
    if isinstance(parameter, CategoricalParameter):
        return [coded(parameter, value) for value in values]
    return [to_unit(parameter, coded(parameter, value)) for value in values]


def _only(names: Container[str], params: Params) -> Params:
    return {name: value for name, value in params.items() if name in names}


def _importances(space: Space, direction: Direction, trials: Trials, evaluator: Evaluator) -> dict[str, float]:
    import_modules("optuna.importance")
    # With it comes scikit-learn: a second, and 130 MB.
    from optuna.importance import (  # noqa: PLC0415
        FanovaImportanceEvaluator,
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    evaluators: dict[Evaluator, Callable[[], Any]] = {
        "ped_anova": partial(
            PedAnovaImportanceEvaluator, target_quantile=max(TARGET_SHARE, MIN_TARGET_TRIALS / len(trials))
        ),
        "fanova": partial(FanovaImportanceEvaluator, n_trees=TREE_COUNT, seed=0),
    }
    frozen = _frozen_on_unit_scale(space, _rescaled(trials)) if evaluator == "fanova" else _frozen(space, trials)
    study = frozen_study([direction], list(frozen))
    found = get_param_importances(study, evaluator=evaluators[evaluator]())
    return {name: float(value) for name, value in found.items()}


def _rescaled(trials: Trials) -> Trials:
    """Rescales values so that scikit-learn's trees can tell their variance: not below 1e-16, and not far from 0.

    A power of two changes no digits, so that usual values give the same trees.
    """
    values = _by_power_of_two(np.array([value for _, value in trials]))
    if np.ptp(values) < LEAST_SPREAD:
        values = _by_power_of_two(values - values.mean())
    return [(params, value) for (params, _), value in zip(trials, values.tolist(), strict=True)]


def _by_power_of_two(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled so that the largest size is between 0.5 and 1."""
    _, exponent = np.frexp(np.abs(values).max())
    return np.asarray(np.ldexp(values, -exponent))


def _frozen(space: Space, trials: Trials) -> Iterator[FrozenTrial]:
    distributions = distributions_of(space)
    for number, (params, value) in enumerate(trials):
        given = {name: coded(space.root[name], one) for name, one in params.items()}
        yield _completed(number, given, distributions, value)


def _frozen_on_unit_scale(space: Space, trials: Trials) -> Iterator[FrozenTrial]:
    """Freezes trials with the same parameters; numbers become positions, because the trees compute with float32."""
    distributions = {
        name: one if isinstance(one, CategoricalDistribution) else FloatDistribution(0.0, 1.0)
        for name, one in distributions_of(space).items()
    }
    columns = {name: _spread(_positions(space, trials, name)) for name in trials[0][0]}
    for number, (_, value) in enumerate(trials):
        given = {name: column[number] for name, column in columns.items()}
        yield _completed(number, given, distributions, value)


def _spread(positions: list[float]) -> list[float]:
    """Over the whole range if they span less than `LEAST_RANGE` of it."""
    low, high = min(positions), max(positions)
    return positions if high - low >= LEAST_RANGE else [(one - low) / (high - low) for one in positions]


def _completed(
    number: int, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution], value: float
) -> FrozenTrial:
    own = {name: distributions[name] for name in params}
    return frozen_trial(number, TrialState.COMPLETE, params=params, distributions=own, values=[value])
