"""TPE on a history that is kept as columns: the proposer, and the sampler of Optuna that it asks."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.estimate import Estimate, Estimating, NewestDraw
from search.samplers.optuna.ask import newest_draw
from search.samplers.optuna.internals import (
    ParzenEstimatorParameters,
    default_gamma,
    default_gamma_multiobjective,
    default_weights,
    mixture_of,
)
from search.samplers.optuna.tpe.density import Array, log_density
from search.samplers.optuna.tpe.estimator import SortedParzenEstimator
from search.samplers.optuna.tpe.history import Rows, TpeHistory
from search.samplers.sampler import Source
from search.space.space import Params

_MIN_SORTED_ROWS = 256
"""With fewer rows, keeping them sorted costs more than it saves."""

PARAMETERS = ParzenEstimatorParameters(
    prior_weight=1.0,
    consider_magic_clip=True,
    consider_endpoints=False,
    weights=default_weights,
    multivariate=True,
)
"""The defaults of Optuna's TPESampler."""


class ColumnsProposer:
    """Proposes by TPE. Keeps the history as columns of numbers, so that a proposal converts only what is new.

    `options` are those of Optuna's TPESampler.
    """

    def __init__(self, problem: Problem, seed: int, *, constant_liar: bool, **options: Any) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._constant_liar = constant_liar
        self._history = TpeHistory(problem)
        self._newest_draw = NewestDraw()

    def learn(self, observation: Observation) -> None:
        self._history.learn(observation)

    def source(self, number: int) -> Source:
        known = len(self._history.without(number, running=False))
        return "model" if known >= self._options["n_startup_trials"] else "start_up"

    def propose(self, number: int) -> Params:
        rows = self._history.without(number, running=self._constant_liar)

        def draw(seed: int) -> Params:
            sampler = HistoryTpeSampler(history=self._history, rows=rows, seed=seed, **self._options)
            self._newest_draw = newest_draw(self._problem, sampler, [], number)
            return self._newest_draw.params

        return constrained_draw(self._problem.space, self._seed, number, draw)

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return self._newest_draw.estimate(number, params)


class HistoryTpeSampler(optuna.samplers.BaseSampler, Estimating):
    """Does what Optuna's TPESampler does, but reads the history from columns instead of all trials of the study.

    `rows` are the trials that it learns from, in the order of their numbers.
    """

    def __init__(
        self,
        *,
        history: TpeHistory,
        rows: Rows,
        seed: int,
        n_startup_trials: int,
        n_ei_candidates: int,
        multivariate: bool,
        group: bool,
    ) -> None:
        self._history, self._rows = history, rows
        self._random = optuna.samplers.RandomSampler(seed=seed)
        self._rng = np.random.RandomState(seed)
        self._candidate_count = n_ei_candidates
        self._multivariate, self._group = multivariate, group
        self._ended = history.ended(rows)
        self._has_started = len(self._ended) >= n_startup_trials
        self._groups: list[dict[str, BaseDistribution]] = []
        self._halves: tuple[Rows, Rows] | None = None
        self._log_ratios: dict[frozenset[str], float] = {}
        """Of the densities of good trials and others, by the parameters that were drawn together."""

    def estimate(self, problem: Problem, params: Params) -> Estimate | None:  # noqa: ARG002
        """Parameters that were drawn but are under a condition that does not hold are left out."""
        below, above = self._halves or ((), ())
        if not (len(below) and len(above)):
            return None
        log_ratio = sum(one for names, one in self._log_ratios.items() if names <= params.keys())
        return Estimate.of_densities(log_ratio, len(below) / (len(below) + len(above)))

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        if not self._multivariate:
            return {}
        spaces = self._history.groups(self._ended) if self._group else [self._history.in_all(self._ended)]
        several = [{name: one for name, one in space.items() if not one.single()} for space in spaces]
        self._groups = [dict(sorted(space.items())) if self._group else space for space in several]
        return {name: one for space in self._groups for name, one in space.items()}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        sampled: dict[str, Any] = {}
        for space in self._groups if self._has_started else []:
            sampled |= self._sample(study, space) if space else {}
        return sampled

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if not self._has_started:
            return self._random.sample_independent(study, trial, param_name, param_distribution)
        return self._sample(study, {param_name: param_distribution})[param_name]

    def _sample(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        several = len(study.directions) > 1
        if self._halves is None:
            gamma = default_gamma_multiobjective if several else default_gamma
            self._halves = self._history.split(study, self._rows, gamma)
        below, above = (self._history.having(half, search_space) for half in self._halves)
        below_estimator = self._estimator(below, search_space, *([np.ones(len(below))] if several else []))
        above_estimator = self._estimator(above, search_space)
        candidates = below_estimator.sample(self._rng, self._candidate_count)
        points = np.array(list(candidates.values())).T
        acquisition = log_density(mixture_of(below_estimator), points) - log_density(
            mixture_of(above_estimator), points
        )
        best = int(np.argmax(acquisition))
        self._log_ratios[frozenset(search_space)] = float(acquisition[best])
        return {name: one.to_external_repr(candidates[name][best].item()) for name, one in search_space.items()}

    def _estimator(
        self, rows: Rows, search_space: dict[str, BaseDistribution], *weights: Array
    ) -> SortedParzenEstimator:
        observations = self._history.observations(rows, search_space)
        orders = {name: self._history.order(rows, name) for name in search_space if len(rows) >= _MIN_SORTED_ROWS}
        return SortedParzenEstimator(observations, search_space, PARAMETERS, *weights, orders=orders)
