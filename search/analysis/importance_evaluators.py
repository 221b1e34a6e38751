"""Optuna's importance evaluators on a space's configurations."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from search.problem import Direction
from search.samplers.optuna.conversion import distributions_of, frozen_trial
from search.samplers.optuna.frozen_study import frozen_study
from search.space.parameters import coded
from search.space.space import Params, Space
from search.thread_safe_import import import_modules

Evaluator = Literal["ped_anova", "fanova"]

TREE_COUNT = 16
LEAST_SPREAD = 1e-3
"""Of values whose largest size is about 1. With less of it, the mean is subtracted."""

TARGET_SHARE, MIN_TARGET_TRIALS = 0.1, 5
"""PED-ANOVA asks what the best share of the trials have in common, and Optuna's documentation prefers at least so many
(`PedAnovaImportanceEvaluator`): of one or two trials, the values of a parameter that few trials have agree by chance.
"""

# The service's log does not need to say that few trials had a conditional parameter.
warnings.filterwarnings("ignore", message="Some regimes for parameter|Target and region quantiles")


def importances(
    space: Space, direction: Direction, trials: Sequence[tuple[Params, float]], evaluator: Evaluator
) -> dict[str, float]:
    """The importance of each parameter; the sum is 1.

    The trials are configurations of the space and their values, more than `MIN_TARGET_TRIALS`.
    """
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
    if evaluator == "fanova":
        trials = _rescaled(trials)
    study = frozen_study([direction], list(_frozen_trials(space, trials)))
    found = get_param_importances(study, evaluator=evaluators[evaluator]())
    return {name: float(value) for name, value in found.items()}


def _rescaled(trials: Sequence[tuple[Params, float]]) -> Sequence[tuple[Params, float]]:
    """With values of which scikit-learn's trees can tell the variance: not below 1e-16, and not far from 0.

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


def _frozen_trials(space: Space, trials: Sequence[tuple[Params, float]]) -> Iterator[FrozenTrial]:
    distributions = distributions_of(space)
    for number, (params, value) in enumerate(trials):
        yield frozen_trial(
            number,
            TrialState.COMPLETE,
            params={name: coded(space.root[name], given) for name, given in params.items()},
            distributions={name: distributions[name] for name in params},
            values=[value],
        )
