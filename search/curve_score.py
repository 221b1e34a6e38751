"""Ranks trials by what they have shown at their rungs, so that running, stopped and completed ones have one scale.

Two trials are compared at the highest rung that both have reached. As that alone is not an order (a trial may lead at
one rung and not at the next), the higher rungs count first: trials are ranked from the top rung down, and a trial whose
last rung it is comes directly after the last of those that went further and were not worse at this rung. So a trial
that was stopped never ranks before one that was as good there and went on. Trials that tie where they were ranked stay
beside each other, whatever they had shown before. Trials without rungs rank by their values.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.problem import Observation, Problem, sign_of

Losses = NDArray[np.float64]
Rows = NDArray[np.intp]
Curve = dict[int, float]
"""The loss of a trial at each rung that it has reached; less is better."""

COMPLETED = 2**10
"""The rung of completed trials, above all others. There the value of the objective counts."""


def rung_of(step: int) -> int:
    """Four rungs for each doubling of the step, in integers. Two rungs of successive halving never share one."""
    return int((step**4).bit_length())


def curve_of(problem: Problem, observation: Observation) -> Curve | None:
    """What a trial has shown. Empty if it ended as one of the worst; None if nothing is known of it (yet).

    A running trial has shown only its rungs: its last report changes without notice, so that a proposal would depend on
    when the trial was read. Under constraints it has shown nothing, because whether it is feasible is known from there.
    """
    match observation.status:
        case "completed" if observation.values:
            loss = sign_of(problem.directions[0]) * observation.values[0]
            return {**_rungs(problem, observation), COMPLETED: math.inf if math.isnan(loss) else loss}
        case "diverged":
            return {}
        case "pruned":
            return _rungs(problem, observation)
        case "stopped":
            return _rungs(problem, observation) or None
        case "running" if observation.rungs and observation.constraints is None:
            return _rungs(problem, observation)
        case _:
            return None


def best_first(losses_by_rung: Iterable[Losses], count: int, most: int | None = None) -> Rows:
    """The indexes of the trials that have reached a rung, best first, at most `most` of them.

    `losses_by_rung` has the losses of all `count` trials at each rung, the highest rung first; NaN where a trial has
    not reached it. Of trials that tie, those with lower indexes come first.
    """
    most = count if most is None else min(most, count)
    ties = _Ties(count, most)
    order = np.empty(0, dtype=np.intp)
    for losses in losses_by_rung:
        there = np.flatnonzero(~np.isnan(losses))
        is_new = ties.first[there] < 0
        new, further = there[is_new], there[~is_new]
        ties.add(new, losses)
        new = _candidates(losses, new, further[ties.first[further] == most], most)
        order = np.insert(order, _positions(losses, new, further, ties, len(order)), new)[:most]
        ties.place(order)
    return order


def scores(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """The share of the other trials that each trial outranks; a tie counts half."""
    rungs = sorted({rung for curve in curves for rung in curve}, reverse=True)
    columns = (np.array([curve.get(rung, math.nan) for curve in curves]) for rung in rungs)
    group = np.full(len(curves), len(curves))  # those that have shown nothing come last
    previous, index = None, -1
    for trial in best_first(columns, len(curves)).tolist():
        index += _last_of(curves[trial]) != previous
        group[trial], previous = index, _last_of(curves[trial])
    return shares_behind(group)


def shares_behind(keys: NDArray[Any]) -> NDArray[np.float64]:
    """For each key the share of the others that come after it, from 0 to 1; an equal one counts half."""
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts + (counts - 1) / 2
    shares: NDArray[np.float64] = 1 - before[group] / max(1, len(keys) - 1)
    return shares


def _last_of(curve: Curve) -> tuple[int, float]:
    rung = max(curve)
    return rung, curve[rung]


def _candidates(losses: Losses, new: Rows, not_first: Rows, most: int) -> Rows:
    """Returns the new trials that may be among the first, best first."""
    if len(not_first):
        new = new[losses[new] < losses[not_first].min()]
    if len(new) > most:
        new = new[losses[new] <= np.partition(losses[new], most - 1)[most - 1]]
    return new[np.argsort(losses[new], kind="stable")]


class _Ties:
    """For each trial the places of the first and the last one of those that tie with it where they were ranked.

    Both are -1 if it is not ranked yet, and `most` if it is not among the first.
    """

    def __init__(self, count: int, most: int) -> None:
        self.first, self.last = np.full((2, count), -1, dtype=np.intp)
        self._tie, self._tie_count, self._most = np.full(count, -1, dtype=np.intp), 0, most

    def add(self, new: Rows, losses: Losses) -> None:
        """New trials with the same loss tie."""
        known, tie = np.unique(losses[new], return_inverse=True)
        self._tie[new] = self._tie_count + tie
        self._tie_count += len(known)

    def place(self, order: Rows) -> None:
        ranked, tie = self._tie >= 0, self._tie[order]
        is_first = np.diff(tie, prepend=-1) != 0
        begins, run = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        self.first[ranked], self.last[ranked] = self._most, self._most
        self.first[order], self.last[order] = begins[run], np.append(begins[1:], len(order))[run] - 1


def _positions(losses: Losses, new: Rows, further: Rows, ties: _Ties, end: int) -> Rows:
    """The places before which the new trials are inserted.

    One that is better than all that went further comes before them, but not before trials that were not at this rung,
    unless they tie with the first of them.
    """
    if not len(further):
        return np.full(len(new), end)
    further = further[np.argsort(losses[further], kind="stable")]
    last = np.maximum.accumulate(np.append(ties.first[further].min() - 1, ties.last[further]))
    positions: Rows = 1 + last[np.searchsorted(losses[further], losses[new], side="right")]
    return positions


def _rungs(problem: Problem, observation: Observation) -> Curve:
    """The first loss at each rung. Without any, the last report counts, as for a trial of an earlier experiment."""
    known = sorted(observation.rungs)
    if not known and observation.last_step is not None and observation.last_value is not None:
        known = [(observation.last_step, sign_of(problem.directions[0]) * observation.last_value)]
    found: Curve = {}
    for step, loss in known:
        found.setdefault(rung_of(step), math.inf if math.isnan(loss) else loss)
    return found
