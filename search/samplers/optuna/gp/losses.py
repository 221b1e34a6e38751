"""The losses that a Gaussian process learns from.

Where a training diverges, its loss jumps: at a learning rate a little above the best one, for example. A smooth model
of such losses stays away from the best values beside the jump. So the losses of diverged trials do not count; instead,
a second model learns where trials diverge (Gelbart et al., Bayesian Optimization with Unknown Constraints, 2014,
https://arxiv.org/abs/1403.5607).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

FIRST_TRIALS = 10
SHRINK = 32
HUGE = float(np.finfo(np.float64).max) / SHRINK


def diverged(losses: Array, far: float) -> Flags:
    """Tells which are no finite number, or `far` times as far above the median as the least is below it.

    The median is that of the first trials, which were drawn at random: when a search has found the best values, that of
    all is close to them, and everything else far away.
    """
    found = ~np.isfinite(losses)
    first_count = np.count_nonzero(~found[:FIRST_TRIALS])
    if not first_count:
        return found
    known = _without_overflow(losses[~found])
    middle, least = np.median(known[:first_count]), known.min()
    if middle > least:
        found[~found] = (known - middle) / far > middle - least
    return found


def bounded(losses: Array, far: float = 1.0) -> Array:
    """None is more than `far` times as far above the median as the least one is below it; all are finite.

    So losses of trials that almost diverge do not make all others look equal. Only ranks would be as robust.
    """
    known = _without_overflow(losses)
    middle, least = np.median(known), known.min()
    return np.minimum(known, middle + far * (middle - least)) if middle > least else known


def standardized(losses: Array) -> Array:
    """Returns them with the mean 0 and the deviation 1, and more is better. All are 0 if they are equal."""
    known = losses / (np.abs(losses).max() or 1.0)  # or the squares of small ones would be 0
    values: Array = (known.mean() - known) / (known.std() or 1.0)
    return values


def are_huge(losses: Array) -> bool:
    """Whether differences of them might not be floats."""
    return bool(np.abs(losses).max() > HUGE)


def _without_overflow(losses: Array) -> Array:
    """Smaller by the same factor, if they are huge."""
    return losses / SHRINK if are_huge(losses) else losses
