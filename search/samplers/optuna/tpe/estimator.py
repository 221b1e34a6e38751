"""Optuna's Parzen estimator for a long history: it does not sort each parameter again for each proposal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution

from search.samplers.optuna.internals import (
    EPS,
    Kernels,
    KernelsOfLogs,
    KernelsOfNumbers,
    ParzenEstimator,
    ParzenEstimatorParameters,
)
from search.samplers.optuna.tpe.density import Array

Order = NDArray[np.intp]


class SortedParzenEstimator(ParzenEstimator):
    """`orders` has, by parameter, the indexes that sort its observations.

    The width of a kernel depends only on its neighbours, which Optuna finds by sorting twice.
    """

    def __init__(self, *arguments: Any, orders: Mapping[str, Order]) -> None:
        self._orders = orders
        super().__init__(*arguments)

    def kernels(
        self, observations: Array, name: str, space: BaseDistribution, parameters: ParzenEstimatorParameters
    ) -> Kernels:
        order = self._orders.get(name)
        if order is not None and isinstance(space, FloatDistribution) and space.step is None:
            sorted_kernels = _float_kernels(observations, order, space, parameters)
            if sorted_kernels is not None:
                return sorted_kernels
        return super().kernels(observations, name, space, parameters)


def _float_kernels(
    observations: Array, order: Order, space: FloatDistribution, parameters: ParzenEstimatorParameters
) -> Kernels | None:
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
    kind = KernelsOfLogs if space.log else KernelsOfNumbers
    return kind(mus, np.append(sigmas, high - low), space.low, space.high)
