"""The history as columns of numbers, for samplers that look at all of it for each proposal."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import _split_complete_trials_multi_objective
from optuna.search_space.group_decomposed import _SearchSpaceGroup
from optuna.trial import FrozenTrial, TrialState

from search.problem import sign_of
from search.samplers.optuna.conversion import distributions_of, remembered

if TYPE_CHECKING:
    import optuna

    from search.problem import Observation, Problem

Rows = NDArray[np.intp]

_FIRST = 64
"""Rows to begin with."""

_COMPLETE, _PRUNED, _RUNNING, _FAILED = range(4)
_CODES = {
    TrialState.COMPLETE: _COMPLETE,
    TrialState.PRUNED: _PRUNED,
    TrialState.RUNNING: _RUNNING,
    TrialState.FAIL: _FAILED,
}
_NOTHING_SHOWN = (1.0, 0.0)
"""What Optuna ranks a pruned trial without a report by: behind all others, whose steps count below zero."""


class Columns:
    """A row for each trial, with Optuna's internal numbers; NaN for a parameter that a trial does not have."""

    def __init__(self, problem: "Problem") -> None:
        self._problem = problem
        self._distributions = distributions_of(problem.space)
        self._signs = np.array([sign_of(one) for one in problem.directions], dtype=float)
        self._place = {name: place for place, name in enumerate(self._distributions)}
        self._row: dict[int, int] = {}
        self._numbers = np.empty(_FIRST, dtype=np.int64)
        self._codes = np.empty(_FIRST, dtype=np.int8)
        self._losses = np.empty((_FIRST, len(self._signs)))
        self._shown = np.empty((_FIRST, 2))
        self._excess = np.empty(_FIRST)
        self._params = np.empty((len(self._place), _FIRST))
        self._in_order: dict[str, Rows] = {}

    def learn(self, observation: "Observation") -> None:
        """Take in a trial, in place of what was known of its number."""
        trial = remembered(self._problem, observation, self._distributions)
        row = self._row.setdefault(trial.number, len(self._row))
        if row == len(self._numbers):
            self._make_room()
        self._numbers[row] = trial.number
        self._codes[row] = _CODES[trial.state]
        self._losses[row] = self._signs * trial.values if trial.values else np.nan
        self._shown[row] = self._rank(trial)
        self._excess[row] = sum(value for value in trial.constraints.values() if value > 0)
        self._params[:, row] = np.nan
        for name, value in trial.params.items():
            self._params[self._place[name], row] = self._distributions[name].to_internal_repr(value)

    def besides(self, number: int, *, running: bool) -> Rows:
        """Of all others, those that can be learned from, in the order of their numbers; `running`: and who runs."""
        count = len(self._row)
        codes, numbers = self._codes[:count], self._numbers[:count]
        rows: Rows = np.flatnonzero((codes <= (_RUNNING if running else _PRUNED)) & (numbers != number))
        in_order: Rows = rows[np.argsort(numbers[rows], kind="stable")]
        return in_order

    def ended(self, rows: Rows) -> Rows:
        ended: Rows = rows[self._codes[rows] != _RUNNING]
        return ended

    def always_there(self, rows: Rows) -> dict[str, BaseDistribution]:
        """The parameters that all of the rows have, in the order of their names; none of no rows."""
        if not len(rows):
            return {}
        missing = {name for name, place in self._place.items() if np.isnan(self._params[place, rows]).any()}
        return {name: one for name, one in self._distributions.items() if name not in missing}

    def groups(self, rows: Rows) -> _SearchSpaceGroup:
        """Which parameters come together in the rows."""
        found = _SearchSpaceGroup()
        there = ~np.isnan(self._params[:, rows])
        for kind in dict.fromkeys(map(bytes, there.T)):  # as they come first
            found.add_distributions(
                {name: self._distributions[name] for name, place in self._place.items() if kind[place]}
            )
        return found

    def having(self, rows: Rows, names: Iterable[str]) -> Rows:
        """The rows that have all of these parameters."""
        missing = np.logical_or.reduce([np.isnan(self._params[self._place[name], rows]) for name in names])
        return rows[~missing] if missing.any() else rows

    def observations(self, rows: Rows, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
        """The values of these parameters in the rows, which have all of them."""
        return {name: self._params[self._place[name], rows] for name in names}

    def order(self, rows: Rows, name: str) -> Rows:
        """The places of the rows, which all have the parameter, in the rising order of its values.

        All rows are kept in the order of the last time, which is nearly that of this time: sorting it is one pass.
        """
        count, column = len(self._row), self._params[self._place[name]]
        known = self._in_order.get(name, np.empty(0, dtype=np.intp))
        all_rows = np.concatenate([known, np.arange(len(known), count, dtype=np.intp)])
        all_rows = self._in_order[name] = all_rows[np.argsort(column[all_rows], kind="stable")]
        place = np.full(count, -1, dtype=np.intp)
        place[rows] = np.arange(len(rows))
        places: Rows = place[all_rows]
        return places[places >= 0]

    def split(self, study: "optuna.Study", rows: Rows, below: Callable[[int], int]) -> tuple[Rows, Rows]:
        """The best of the rows, and all others; `below` says how many of how many are to be called the best.

        Feasible trials that are complete come first, then pruned ones, then those that overstep constraints.
        """
        codes, feasible = self._codes[rows], self._excess[rows] <= 0
        kinds = (
            (rows[feasible & (codes == _COMPLETE)], self._best_complete),
            (rows[feasible & (codes == _PRUNED)], self._best_pruned),
            (rows[~feasible & (codes != _RUNNING)], self._best_infeasible),
        )
        left, best = below(int(np.count_nonzero(codes != _RUNNING))), []
        for kind, first in kinds:
            best.append(first(study, kind, min(left, len(kind))))
            left -= len(best[-1])
        chosen = np.isin(rows, np.concatenate(best))
        return rows[chosen], rows[~chosen]

    def _best_complete(self, study: "optuna.Study", rows: Rows, count: int) -> Rows:
        if len(self._signs) == 1:
            return rows[np.argsort(self._losses[rows, 0], kind="stable")[:count]]
        scored = [_Scored(row, self._signs * self._losses[row]) for row in rows]
        best, _ = _split_complete_trials_multi_objective(scored, study, count)  # type: ignore[arg-type]
        return np.array([one.row for one in best], dtype=np.intp)  # type: ignore[attr-defined]

    def _best_pruned(self, _: "optuna.Study", rows: Rows, count: int) -> Rows:
        return rows[np.lexsort((self._shown[rows, 1], self._shown[rows, 0]))[:count]]

    def _best_infeasible(self, _: "optuna.Study", rows: Rows, count: int) -> Rows:
        return rows[np.argsort(self._excess[rows], kind="stable")[:count]]

    def _rank(self, trial: FrozenTrial) -> tuple[float, float]:
        if not trial.intermediate_values:
            return _NOTHING_SHOWN
        step, value = max(trial.intermediate_values.items())
        return -step, np.inf if np.isnan(value) else self._signs[0] * value

    def _make_room(self) -> None:
        self._numbers, self._codes = _doubled(self._numbers), _doubled(self._codes)
        self._losses, self._shown = _doubled(self._losses), _doubled(self._shown)
        self._excess, self._params = _doubled(self._excess), _doubled(self._params.T).T.copy()


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.empty_like(array)])


class _Scored:
    """As much of a trial as Optuna's ranking by several objectives looks at."""

    def __init__(self, row: int, values: NDArray[np.float64]) -> None:
        self.row, self.values = row, values
