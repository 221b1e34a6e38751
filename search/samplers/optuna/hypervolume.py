"""Optuna's computation of a hypervolume."""

import numpy as np
from numpy.typing import NDArray
from optuna._hypervolume import compute_hypervolume


def hypervolume_of(losses: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Of a row for each trial, none of which is worse than the reference in any column."""
    return float(compute_hypervolume(losses, reference)) if len(losses) else 0.0
