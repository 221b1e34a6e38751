"""How well the trials near the priors have done against the others, and what the next proposal comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.curve_score import curve_of, scores, shares_behind
from search.problem import Observation, Problem

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


def ranked(problem: Problem, trials: Sequence[Observation]) -> list[tuple[Observation, float]]:
    """The trials that have shown something, each with the share of the others that it ranks before.

    Infeasible ones rank after all feasible ones, by their violations.
    """
    curves = {index: curve for index, one in enumerate(trials) if (curve := curve_of(problem, one)) is not None}
    known = [trials[index] for index in curves]
    standing = scores(list(curves.values()))
    if problem.constrained and known:
        standing = _feasible_first(np.array([_violation(one) for one in known]), standing)
    return list(zip(known, standing.tolist(), strict=True))


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
    return float(((0.5 + lead) * weight + OPTIMISM) / (weight + OPTIMISM))


def _violation(trial: Observation) -> float:
    """An unknown one counts as the largest, as does that of a trial that diverged."""
    if trial.constraints is None or trial.status == "diverged":
        return float("inf")
    return sum(max(0.0, one) for one in trial.constraints)


def _feasible_first(violations: Numbers, standing: Numbers) -> Numbers:
    """The standing by violation, and of equal ones by the standing before."""
    return shares_behind(np.rec.fromarrays([violations, -standing]))
