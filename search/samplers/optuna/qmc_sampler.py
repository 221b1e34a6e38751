"""Optuna's QMCSampler at a given point of its sequence."""

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.samplers.optuna.conversion import distributions_of
from search.samplers.sampler import derived_seed
from search.space.space import Space


class PointSampler(optuna.samplers.QMCSampler):
    """The space is known before the first trial, and the point is given by the trial's number instead of a counter."""

    def __init__(self, space: Space, number: int, *, seed: int, **options: Any) -> None:
        random = optuna.samplers.RandomSampler(seed=derived_seed(seed, number))
        super().__init__(seed=seed, independent_sampler=random, warn_independent_sampling=False, **options)
        self._space, self._number = space, number

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        distributions = distributions_of(self._space)
        return {name: distributions[name] for name in self._space.root if not distributions[name].single()}

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:  # noqa: ARG002
        return self._number
