"""Optuna's TPESampler on a history that is kept as columns."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.sampler import default_gamma, default_gamma_multiobjective
from optuna.trial import FrozenTrial

from search.samplers.optuna.parzen_density import Array, log_density
from search.samplers.optuna.parzen_estimator import SortedParzenEstimator
from search.samplers.optuna.tpe_history import Rows, TpeHistory

_MIN_SORTED_ROWS = 256
"""With fewer rows, keeping them sorted costs more than it saves."""


class HistoryTpeSampler(optuna.samplers.TPESampler):
    """Reads the history from columns, where Optuna's sampler goes through all trials of the study.

    `rows` are the trials that it learns from, in the order of their numbers.
    """

    def __init__(self, *, history: TpeHistory, rows: Rows, **options: Any) -> None:
        super().__init__(**options)
        self._history, self._rows = history, rows
        self._ended = history.ended(rows)
        self._halves: tuple[Rows, Rows] | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        if not self._is_multivariate(study):
            return {}
        if self._group:
            self._search_space_group = self._history.groups(self._ended)
            spaces = self._search_space_group.search_spaces
            return {name: one for space in spaces for name, one in sorted(space.items()) if not one.single()}
        return {name: one for name, one in self._history.in_all(self._ended).items() if not one.single()}

    def _sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space or len(self._ended) < self._n_startup_trials:
            return {}
        return self._sample(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if len(self._ended) < self._n_startup_trials:
            return self._random_sampler.sample_independent(study, trial, param_name, param_distribution)
        return self._sample(study, trial, {param_name: param_distribution})[param_name]

    def _sample(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        several = len(study.directions) > 1
        if self._halves is None:
            gamma = default_gamma_multiobjective if several else default_gamma
            self._halves = self._history.split(study, self._rows, gamma)
        below, above = (self._history.having(half, search_space) for half in self._halves)
        below_estimator = self._estimator(below, search_space, *([np.ones(len(below))] if several else []))
        above_estimator = self._estimator(above, search_space)
        candidates = below_estimator.sample(self._rng.rng, self._n_ei_candidates)
        points = np.array(list(candidates.values())).T
        acquisition = _log_density(below_estimator, points) - _log_density(above_estimator, points)
        best = self._compare(candidates, acquisition)
        return {name: one.to_external_repr(best[name]) for name, one in search_space.items()}

    def _estimator(
        self, rows: Rows, search_space: dict[str, BaseDistribution], *weights: Array
    ) -> SortedParzenEstimator:
        observations = self._history.observations(rows, search_space)
        orders = {name: self._history.order(rows, name) for name in search_space if len(rows) >= _MIN_SORTED_ROWS}
        return SortedParzenEstimator(
            observations, search_space, self._parzen_estimator_parameters, *weights, orders=orders
        )


def _log_density(estimator: _ParzenEstimator, points: Array) -> Array:
    return log_density(estimator._mixture_distribution, points)  # noqa: SLF001
