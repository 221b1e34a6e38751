"""Values of parameters that do not exist, for a model that needs a value of every parameter.

A parameter has the same one in all trials in which it does not exist, so that it makes no difference between them
(Lévesque, Durand, Gagné and Sabourin, Bayesian Optimization for Conditional Hyperparameter Spaces, 2017,
https://doi.org/10.1109/IJCNN.2017.7965867).
"""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from search.samplers.optuna.conversion import distributions_of
from search.samplers.optuna.gp.model_space import nearest_value
from search.space.space import Space


class AbsentValues:
    """The values that Optuna gives absent conditional parameters: the middle of the range, or the first choice."""

    def __init__(self, space: Space) -> None:
        distributions = distributions_of(space)
        self._distributions = {name: distributions[name] for name in space.conditional}
        self._values = {name: absent_value(one) for name, one in self._distributions.items()}

    def added_to(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The trials, each with a value of every parameter. Those that have none at all stay without."""
        return [self._added_to(trial) for trial in trials] if self._values else list(trials)

    def _added_to(self, trial: FrozenTrial) -> FrozenTrial:
        if not trial.params or self._values.keys() <= trial.params.keys():
            return trial
        found = copy(trial)
        found.params = {**self._values, **trial.params}
        found.distributions = {**self._distributions, **trial.distributions}
        return found


def absent_value(distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    assert isinstance(distribution, FloatDistribution | IntDistribution)  # noqa: S101 - Optuna has no other kinds
    low, high = distribution.low, distribution.high
    middle = math.sqrt(low) * math.sqrt(high) if distribution.log else low / 2 + high / 2
    return nearest_value(distribution, min(max(middle, low), high))
