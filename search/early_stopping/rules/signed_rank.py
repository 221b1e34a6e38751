"""Wilcoxon's one-sided signed-rank test, as scipy.stats.wilcoxon with `zsplit`, in a tenth of the time."""

import math
from collections.abc import Sequence

import numpy as np

MAX_EXACT = 50
MAX_EXACT_WITH_TIES = 13


def signed_rank_p(differences: Sequence[float]) -> float:
    """The probability of differences at least as far above zero if their signs are random. At least one is needed.

    Exact for up to 50 differences, or up to 13 with ties or zeros; otherwise approximated by the normal distribution.
    """
    sizes = np.abs(differences)
    ranks, ties = _ranks(sizes)
    # Half of a zero's rank counts for each sign.
    plus = float(ranks[np.asarray(differences) > 0].sum() + ranks[sizes == 0].sum() / 2)
    count = len(differences)
    is_plain = not (ties > 1).any() and not (sizes == 0).any()
    if count <= (MAX_EXACT if is_plain else MAX_EXACT_WITH_TIES):
        return _exact(ranks[sizes > 0], plus - float(ranks[sizes == 0].sum() / 2))
    return _by_normal(count, ties, plus)


def _ranks(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranks from 1, where equal sizes share their mean rank; and the number of differences of each size."""
    _, index, ties = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(ties)
    return (last - (ties - 1) / 2)[index], ties


def _exact(ranks: np.ndarray, plus: float) -> float:
    """The share of all choices of signs for which the sum of the positive ranks is at least `plus`."""
    halves = np.rint(2 * ranks).astype(int)  # a mean rank may be a multiple of a half
    ways = np.zeros(int(halves.sum()) + 1)
    ways[0] = 1
    for rank in halves:
        ways[rank:] += ways[:-rank].copy()
    return float(ways[round(2 * plus) :].sum() / 2 ** len(ranks))


def _by_normal(count: int, ties: np.ndarray, plus: float) -> float:
    mean = count * (count + 1) / 4
    spread = count * (count + 1) * (2 * count + 1) - float((ties.astype(float) ** 3 - ties).sum()) / 2
    return math.erfc((plus - mean) / math.sqrt(spread / 24) / math.sqrt(2)) / 2
