"""One order of all trials of an experiment: by what they have shown, their violations, and all of their objectives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.curve_score import curve_of, scores, shares_behind
from search.pareto import front_numbers, losses
from search.problem import Observation, Problem

Numbers = NDArray[np.float64]


def ranked(problem: Problem, trials: Sequence[Observation]) -> list[tuple[Observation, float]]:
    """The trials that have shown something, each with the share of the others that it ranks before.

    With several objectives these are the completed ones, by the Pareto front that they are on when those before are
    removed. Infeasible trials rank after all feasible ones, by their violations.
    """
    rank = _by_curve if len(problem.directions) == 1 else _by_front
    known, standing = rank(problem, trials)
    if problem.constrained and known:
        standing = _feasible_first(np.array([_violation(one) for one in known]), standing)
    return list(zip(known, standing.tolist(), strict=True))


def _by_curve(problem: Problem, trials: Sequence[Observation]) -> tuple[list[Observation], Numbers]:
    curves = {index: curve for index, one in enumerate(trials) if (curve := curve_of(problem, one)) is not None}
    return [trials[index] for index in curves], scores(list(curves.values()))


def _by_front(problem: Problem, trials: Sequence[Observation]) -> tuple[list[Observation], Numbers]:
    known = [one for one in trials if one.status == "completed" and one.values]
    found = losses([one.values for one in known if one.values], problem.directions)
    return known, shares_behind(front_numbers(np.where(np.isnan(found), np.inf, found)))


def _violation(trial: Observation) -> float:
    """An unknown one counts as the largest, as does that of a trial that diverged."""
    if trial.constraints is None or trial.status == "diverged":
        return float("inf")
    return sum(max(0.0, one) for one in trial.constraints)


def _feasible_first(violations: Numbers, standing: Numbers) -> Numbers:
    """The standing by violation, and of equal ones by the standing before."""
    return shares_behind(np.rec.fromarrays([violations, -standing]))
