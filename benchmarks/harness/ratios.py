"""Ratios of two searches with the same seeds."""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 5000


def geometric_mean(logs: NDArray[np.float64]) -> str:
    """The geometric mean of ratios, by their logarithms, with its 95 % bootstrap interval."""
    means = np.random.default_rng(0).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(means, (0.025, 0.975)))
    return f"{np.exp(logs.mean()):.2f} ({low:.2f} to {high:.2f})"
