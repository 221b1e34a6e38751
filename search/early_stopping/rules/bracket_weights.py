"""Weights of Hyperband's brackets: how well the ranks at a bracket's first rung have predicted those at the end.

The idea is Hyper-Tune's (Li et al., 2022). `benchmarks.brackets` measures what these numbers are worth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.history import AT_END

PRIOR_PAIRS, PRIOR_AGREEMENT = 10, 0.5
"""So many pairs of trials with this agreement are assumed in addition. At PRIOR_AGREEMENT the weight is 1."""
POWER = 4
"""With which the weight grows with the agreement."""
LEAST_SHARE = 0.02
"""Of each bracket, so that all of them are tried again when the evidence changes."""
FIRST_TRIALS, FIRST_SHARE = 16, 0.8
"""Of so many first trials the lowest bracket gets this share, besides its own share of the rest. Hyperband begins with
that bracket, too (Li et al., 2018): it compares the most trials in the same time."""
MAX_TRIALS = 200
"""The newest completed trials are compared: 19,900 pairs."""
Values = NDArray[np.float64]


@dataclass(frozen=True)
class BracketWeights:
    """The weights of brackets. An agreement is NaN where no trial is stopped before its end; the weight is 1 there."""

    shares: Values
    weights: Values
    agreements: Values
    trial_counts: Sequence[int]


def weigh(
    share_ends: Sequence[int], first_rungs: Sequence[int], max_step: int, completed: CompletedTrials, number: int
) -> BracketWeights:
    """The shares of the brackets for the trial with this number, by the trials that have completed so far.

    `share_ends` are the cumulative shares of the brackets without evidence; the last one is the total.
    """
    shares = _shares(share_ends)
    if number < FIRST_TRIALS:
        shares = (1 - FIRST_SHARE) * shares
        shares[0] += FIRST_SHARE
    numbers = completed.newest(MAX_TRIALS)
    ends = [completed.value_at(number, AT_END) for number in numbers]
    agreements, counts = np.full(len(shares), np.nan), [0] * len(shares)
    for bracket, rung in enumerate(first_rungs):
        if rung < max_step:
            there = [_value_from(completed, number, first_rungs[bracket:]) for number in numbers]
            pairs = [(one, end) for one, end in zip(there, ends, strict=True) if one is not None and end is not None]
            agreements[bracket], counts[bracket] = _agreement(np.array(pairs).reshape(-1, 2)), len(pairs)
    relative = np.maximum(agreements, 0) / PRIOR_AGREEMENT
    weights = np.where(np.isnan(agreements), 1.0, relative**POWER)
    weighted = shares * (weights if weights.any() else np.ones(len(shares)))
    bounded = np.maximum(weighted / weighted.sum(), LEAST_SHARE)
    return BracketWeights(bounded / bounded.sum(), weights, agreements, counts)


def draw(weights: BracketWeights, first_rungs: Sequence[int], position: float) -> Bracket:
    """The bracket at this position, from 0 to 1, among the shares."""
    drawn = int(np.searchsorted(np.cumsum(weights.shares)[:-1], position, side="right"))
    agreement = float(weights.agreements[drawn])
    return Bracket(
        number=drawn,
        first_step=first_rungs[drawn],
        share=float(weights.shares[drawn]),
        weight=float(weights.weights[drawn]),
        agreement=None if math.isnan(agreement) else agreement,
        trial_count=weights.trial_counts[drawn],
    )


def _value_from(completed: CompletedTrials, number: int, rungs: Sequence[int]) -> float | None:
    """At the first of the rungs that the trial has reached.

    It passes those before its first report without reaching them, and is compared for the first time at the next one.
    """
    values = (completed.value_at(number, rung) for rung in rungs)
    return next((value for value in values if value is not None), None)


def _shares(ends: Sequence[int]) -> Values:
    found = np.array([0, *ends], dtype=np.float64)
    shares: Values = np.diff(found) / found[-1]
    return shares


def _agreement(values: Values) -> float:
    """1 less twice the share of pairs of trials in another order at the end, with the assumed pairs; a tie counts 0."""
    there, ends = _order(values[:, 0]), _order(values[:, 1])
    pair_count = len(values) * (len(values) - 1) // 2
    concordance = np.vdot(there, ends) / 2  # each pair stands in both orders
    return float((concordance + PRIOR_AGREEMENT * PRIOR_PAIRS) / (pair_count + PRIOR_PAIRS))


def _order(values: Values) -> Values:
    """For each pair of values 1, 0 or -1; their difference might overflow."""
    larger: Values = (values[:, None] > values).astype(np.float64)
    return larger - larger.T
