"""Optuna's crossovers, in ranges at the limits of floats too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import nsgaii

Array = NDArray[np.float64]


class Bounded(nsgaii.BaseCrossover):
    """A crossover whose child Optuna can always turn back into params.

    Optuna puts what lies above a range on its end, but not before it has taken the exponential of a logarithm, which a
    float may be too small for. And where parents are too far apart for a float to say how far, no child is a number:
    it inherits such a parameter.
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
