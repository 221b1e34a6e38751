"""How similar an earlier experiment is to this one, and what share of the proposals that is worth."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.curve_score import shares_behind

MIN_RANKED = 2
"""The number of own trials from which on their ranks are compared."""
MAX_RANKED = 200
"""With so many own trials earlier experiments no longer matter."""
OPTIMISM = 0.4
"""The similarity before anything is known, which counts as much as OPINION own trials."""
OPINION = 3.0
CAP = 0.9
"""The largest share of the proposals."""
SLOWNESS = 100
"""The number of own trials after which the share has halved: the sampler learns from them."""

Numbers = NDArray[np.float64]


def similarity(predicted: Numbers, standing: Numbers) -> float:
    """From 0 to 1: the rank correlation between what was predicted for the own trials, and what they have shown.

    An earlier experiment that predicts the opposite has no similarity.
    """
    count = max(0, len(standing) - 1)
    agreement = _correlation(shares_behind(-predicted), standing) if count else 0.0
    return max(0.0, (agreement * count + OPTIMISM * OPINION) / (count + OPINION))


def share(similarities: Sequence[float], count: int) -> float:
    """The probability that the next proposal is from an earlier experiment, after `count` own trials with a rank.

    It grows with the square of the similarity, so that chance agreements cost little.
    """
    if count >= MAX_RANKED:
        return 0.0
    return CAP * SLOWNESS / (SLOWNESS + count) * max(similarities, default=0.0) ** 2


def _correlation(one: Numbers, other: Numbers) -> float:
    spread = one.std() * other.std()
    return float(((one - one.mean()) * (other - other.mean())).mean() / spread) if spread > 0 else 0.0
