"""The history as columns of numbers, because TPE reads all of it for each proposal."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from search.curve_score import Losses, best_first, curve_of
from search.problem import Observation, Problem, sign_of
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of
from search.samplers.optuna.internals import SearchSpaceGroup, split_complete_trials_multi_objective

Rows = NDArray[np.intp]

_INITIAL_ROWS = 64

_COMPLETE, _PRUNED, _RUNNING, _FAILED = range(4)
_CODES = {
    TrialState.COMPLETE: _COMPLETE,
    TrialState.PRUNED: _PRUNED,
    TrialState.RUNNING: _RUNNING,
    TrialState.FAIL: _FAILED,
}
_RANK_WITHOUT_REPORT = (1.0, 0.0)
"""Optuna's rank of a pruned trial without a report: last, because the steps of the others count negative."""


class TpeHistory:
    """A row for each trial, with Optuna's internal numbers; NaN for a parameter that a trial does not have.

    With the curve score, every trial that has reached a rung counts as completed, and ranks by its curve.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._distributions = distributions_of(problem.space)
        self._signs = np.array([sign_of(one) for one in problem.directions], dtype=float)
        self._column = {name: index for index, name in enumerate(self._distributions)}
        self._row: dict[int, int] = {}
        self._numbers = np.empty(_INITIAL_ROWS, dtype=np.int64)
        self._codes = np.empty(_INITIAL_ROWS, dtype=np.int8)
        self._losses = np.empty((_INITIAL_ROWS, len(self._signs)))
        self._ranks = np.empty((_INITIAL_ROWS, 2))
        self._violations = np.empty(_INITIAL_ROWS)
        self._params = np.empty((len(self._column), _INITIAL_ROWS))
        self._in_order: dict[str, Rows] = {}
        self._losses_by_rung: dict[int, Losses] = {}  # the highest rung first

    def learn(self, observation: Observation) -> None:
        """Add a trial, or replace what was known of the trial with this number."""
        trial = frozen_trial_of(self._problem, observation, self._distributions)
        row = self._row.setdefault(trial.number, len(self._row))
        if row == len(self._numbers):
            self._grow()
        self._numbers[row] = trial.number
        self._codes[row] = _CODES[trial.state]
        self._losses[row] = self._signs * trial.values if trial.values else np.nan
        self._ranks[row] = self._rank(trial)
        self._violations[row] = sum(value for value in trial.constraints.values() if value > 0)
        self._params[:, row] = np.nan
        for name, value in trial.params.items():
            self._params[self._column[name], row] = self._distributions[name].to_internal_repr(value)
        if self._problem.curve_score:
            self._learn_curve(row, observation)

    def without(self, number: int, *, running: bool) -> Rows:
        """The trials to learn from except `number`, in the order of their numbers; with `running` also running ones."""
        count = len(self._row)
        codes, numbers = self._codes[:count], self._numbers[:count]
        rows: Rows = np.flatnonzero((codes <= (_RUNNING if running else _PRUNED)) & (numbers != number))
        in_order: Rows = rows[np.argsort(numbers[rows], kind="stable")]
        return in_order

    def ended(self, rows: Rows) -> Rows:
        ended: Rows = rows[self._codes[rows] != _RUNNING]
        return ended

    def in_all(self, rows: Rows) -> dict[str, BaseDistribution]:
        """The parameters that all of the rows have, in the order of their names; empty if there are no rows."""
        if not len(rows):
            return {}
        missing = {name for name, column in self._column.items() if np.isnan(self._params[column, rows]).any()}
        return {name: one for name, one in self._distributions.items() if name not in missing}

    def groups(self, rows: Rows) -> list[dict[str, BaseDistribution]]:
        """The groups of parameters that occur together in the rows."""
        found = SearchSpaceGroup()
        present = ~np.isnan(self._params[:, rows])
        for kind in dict.fromkeys(map(bytes, present.T)):  # in the order of their first row
            found.add_distributions(
                {name: self._distributions[name] for name, column in self._column.items() if kind[column]}
            )
        return found.search_spaces

    def having(self, rows: Rows, names: Iterable[str]) -> Rows:
        """The rows that have all of these parameters."""
        missing = np.logical_or.reduce([np.isnan(self._params[self._column[name], rows]) for name in names])
        return rows[~missing] if missing.any() else rows

    def observations(self, rows: Rows, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
        """The values of these parameters in the rows, which have all of them."""
        return {name: self._params[self._column[name], rows] for name in names}

    def order(self, rows: Rows, name: str) -> Rows:
        """The indexes that sort the rows, which all have the parameter, by its values.

        All rows are kept in the order of the last call. It is nearly that of this call, so that sorting is one pass.
        """
        count, column = len(self._row), self._params[self._column[name]]
        known = self._in_order.get(name, np.empty(0, dtype=np.intp))
        all_rows = np.concatenate([known, np.arange(len(known), count, dtype=np.intp)])
        all_rows = self._in_order[name] = all_rows[np.argsort(column[all_rows], kind="stable")]
        index = np.full(count, -1, dtype=np.intp)
        index[rows] = np.arange(len(rows))
        indexes: Rows = index[all_rows]
        return indexes[indexes >= 0]

    def split(self, study: optuna.Study, rows: Rows, below: Callable[[int], int]) -> tuple[Rows, Rows]:
        """The best of the rows, and all others; `below` returns how many of that many trials are the best.

        Feasible completed trials come first, then pruned ones, then infeasible ones.
        """
        codes, feasible = self._codes[rows], self._violations[rows] <= 0
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

    def _learn_curve(self, row: int, observation: Observation) -> None:
        for losses in self._losses_by_rung.values():
            losses[row] = np.nan
        curve = curve_of(self._problem, observation)
        if curve is None:
            self._codes[row] = _RUNNING if observation.status == "running" else _FAILED
            return
        self._codes[row] = _COMPLETE if curve else _PRUNED
        self._ranks[row] = _RANK_WITHOUT_REPORT
        if new := curve.keys() - self._losses_by_rung.keys():
            known = self._losses_by_rung | {rung: np.full(len(self._numbers), np.nan) for rung in new}
            self._losses_by_rung = dict(sorted(known.items(), reverse=True))
        for rung, loss in curve.items():
            self._losses_by_rung[rung][row] = loss

    def _best_complete(self, study: optuna.Study, rows: Rows, count: int) -> Rows:
        if self._problem.curve_score:
            return rows[best_first((losses[rows] for losses in self._losses_by_rung.values()), len(rows), count)]
        if len(self._signs) == 1:
            return rows[np.argsort(self._losses[rows, 0], kind="stable")[:count]]
        scored = [_ValuesOfRow(row, self._signs * self._losses[row]) for row in rows]
        best, _ = split_complete_trials_multi_objective(scored, study, count)  # type: ignore[arg-type]
        return np.array([one.row for one in best], dtype=np.intp)  # type: ignore[attr-defined]

    def _best_pruned(self, _: optuna.Study, rows: Rows, count: int) -> Rows:
        return rows[np.lexsort((self._ranks[rows, 1], self._ranks[rows, 0]))[:count]]

    def _best_infeasible(self, _: optuna.Study, rows: Rows, count: int) -> Rows:
        return rows[np.argsort(self._violations[rows], kind="stable")[:count]]

    def _rank(self, trial: FrozenTrial) -> tuple[float, float]:
        if not trial.intermediate_values:
            return _RANK_WITHOUT_REPORT
        step, value = max(trial.intermediate_values.items())
        return -step, np.inf if np.isnan(value) else self._signs[0] * value

    def _grow(self) -> None:
        self._numbers, self._codes = _doubled(self._numbers), _doubled(self._codes)
        self._losses, self._ranks = _doubled(self._losses), _doubled(self._ranks)
        self._violations, self._params = _doubled(self._violations), _doubled(self._params.T).T.copy()
        for rung, losses in self._losses_by_rung.items():
            self._losses_by_rung[rung] = np.concatenate([losses, np.full_like(losses, np.nan)])


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.empty_like(array)])


class _ValuesOfRow:
    """The part of a trial that Optuna's ranking by several objectives reads."""

    def __init__(self, row: int, values: NDArray[np.float64]) -> None:
        self.row, self.values = row, values
