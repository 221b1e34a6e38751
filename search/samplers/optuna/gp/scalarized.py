"""Several objectives as one: each proposal is for a random trade-off between them.

This is ParEGO (Knowles, ParEGO: A Hybrid Algorithm With On-Line Landscape Approximation for Expensive Multiobjective
Optimization Problems, 2006, https://doi.org/10.1109/TEVC.2005.851274). By the expected gain of the volume that the
Pareto front dominates, as Optuna computes it, a search finds more in as many trials, but with many objectives a
proposal takes minutes.
"""

import math

import numpy as np

from search.samplers.optuna.gp.losses import Array, bounded
from search.samplers.optuna.gp.model_values import log_offset, with_logarithms

VOLUME_TRIALS = {1: math.inf, 2: math.inf, 3: 60, 4: 25}
"""By the number of objectives, up to how many trials the volume's gain takes less than about two seconds. With five it
takes five seconds after 20 trials."""
FAR = 10.0
"""With 1, as a single objective is bounded where trials diverge, the greater part of a front did not count."""
SUM_SHARE = 0.05
"""How much the sum counts beside the largest: without it, trials that others dominate could be as good as those."""


def is_scalarized(trials: int, objectives: int) -> bool:
    return trials > VOLUME_TRIALS.get(objectives, 0)


def scalarized(losses: Array, weights: Array, drawn: int) -> Array:
    """The augmented Chebyshev losses, of shape (trials,); `losses` is finite and has the shape (trials, objectives).

    Each objective counts from its least loss to its largest one that is not FAR above the median; by its logarithm, if
    the first `drawn` trials differ by orders of magnitude.
    """
    columns = [with_logarithms(one, log_offset(one, drawn)) for one in losses.T]
    units = np.column_stack([_from_0_to_1(bounded(column, FAR)) for column in columns])
    weighted = weights * units
    total: Array = weighted.max(axis=1) + SUM_SHARE * weighted.sum(axis=1)
    return total


def _from_0_to_1(losses: Array) -> Array:
    low, high = losses.min(), losses.max()
    return (losses - low) / (high - low) if high > low else np.zeros_like(losses)
