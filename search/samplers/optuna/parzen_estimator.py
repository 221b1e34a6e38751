"""Optuna's Parzen estimator for a long history: it does not sort each parameter again for each proposal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers._tpe.parzen_estimator import EPS, _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.probability_distributions import (
    _BatchedDistributions,
    _BatchedTruncLogNormDistributions,
    _BatchedTruncNormDistributions,
)

from search.samplers.optuna.parzen_density import Array

Order = NDArray[np.intp]


class SortedParzenEstimator(_ParzenEstimator):
    """`orders` has, by parameter, the indexes that sort its observations.

    The width of a kernel depends only on its neighbours, which Optuna finds by sorting twice.
    """

    def __init__(self, *arguments: Any, orders: Mapping[str, Order]) -> None:
        self._orders = orders
        super().__init__(*arguments)

    def _calculate_distributions(
        self,
        observations: Array,
        param_name: str,
        search_space: BaseDistribution,
        parameters: _ParzenEstimatorParameters,
    ) -> _BatchedDistributions:
        order = self._orders.get(param_name)
        if order is not None and isinstance(search_space, FloatDistribution) and search_space.step is None:
            distributions = _float_kernels(observations, order, search_space, parameters)
            if distributions is not None:
                return distributions
        return super()._calculate_distributions(observations, param_name, search_space, parameters)


def _float_kernels(
    observations: Array, order: Order, space: FloatDistribution, parameters: _ParzenEstimatorParameters
) -> _BatchedDistributions | None:
    """For two or more observations. None if two values are equal: Optuna orders these as its own sorting does."""
    scaled, low, high = observations, space.low, space.high
    if space.log:
        scaled, low, high = np.log(observations), np.log(low), np.log(high)
    gaps = np.diff(scaled[order], prepend=low, append=high)
    if not gaps[1:-1].all():
        return None
    widths = np.maximum(gaps[:-1], gaps[1:])
    if not parameters.consider_endpoints:
        widths[0], widths[-1] = gaps[1], gaps[-2]
    narrowest = (high - low) / min(100.0, len(scaled) + 2) if parameters.consider_magic_clip else EPS
    sigmas = np.empty_like(widths)
    sigmas[order] = np.clip(widths, narrowest, high - low)
    mus = np.append(scaled, 0.5 * (low + high))
    kind = _BatchedTruncLogNormDistributions if space.log else _BatchedTruncNormDistributions
    return kind(mus, np.append(sigmas, high - low), space.low, space.high)
