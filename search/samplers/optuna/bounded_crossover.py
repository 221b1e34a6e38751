"""Optuna's crossovers, made safe at the limits of floats."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import nsgaii

Array = NDArray[np.float64]


class BoundedCrossover(nsgaii.BaseCrossover):
    """A crossover whose children Optuna can always convert back to params.

    Optuna clips a value above its range, but only after taking the exponential of a logarithm, which can overflow.
    Where the distance of the parents overflows, the child is not a number: it inherits that parameter from the first
    parent.
    """

    def __init__(self, crossover: nsgaii.BaseCrossover) -> None:
        self._crossover = crossover

    @property
    def n_parents(self) -> int:
        return self._crossover.n_parents

    def crossover(self, parents_params: Array, rng: Any, study: Any, search_space_bounds: Array) -> Array:
        child = self._crossover.crossover(parents_params, rng, study, search_space_bounds)
        child = np.where(np.isfinite(child), child, parents_params[0])
        bounded: Array = np.minimum(child, search_space_bounds[:, 1])
        return bounded
