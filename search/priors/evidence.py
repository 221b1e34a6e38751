"""How well the trials near the priors have done against the others, and what the next proposal comes from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIRST_SHARE = 0.5
"""Of the proposals that are not the sampler's, before any trial has shown something."""
SLOWNESS = 10
"""The number of trials after which this share has halved."""
OPTIMISM = 2.0
"""The belief in the priors before any trial: as if so many trials near them had been better than all others."""
MIN_RANKED = 3
"""Trials from which on one of them is taken for the best."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """The probabilities that the next proposal comes from the priors, and from around the best trial."""

    prior: float
    incumbent: float


def shares(nearness: Numbers, standing: Numbers) -> Shares:
    """`nearness` of each ranked trial to the priors, from 0 to 1, and its standing."""
    count = len(standing)
    total = FIRST_SHARE * SLOWNESS / (SLOWNESS + count)
    prior = total * max(0.0, 2 * _trust(nearness, standing) - 1)
    return Shares(prior, total - prior if count >= MIN_RANKED else 0.0)


def _trust(nearness: Numbers, standing: Numbers) -> float:
    """The estimated probability that a trial near the priors is better than another one."""
    near, far = nearness.sum(), (1 - nearness).sum()
    weight = min(near, far)
    if weight <= 0:
        return 1.0
    lead = nearness @ standing / near - (1 - nearness) @ standing / far
    # One near trial that beats many others leads by more than half of the ranks.
    return min(1.0, float(((0.5 + lead) * weight + OPTIMISM) / (weight + OPTIMISM)))
