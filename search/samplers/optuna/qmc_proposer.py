"""Quasi-Monte Carlo, where trial `n` gets point `n` of the sequence."""

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw, derived_seed
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.conversion import distributions_of
from search.samplers.optuna.internals import QmcHooks
from search.samplers.sampler import Source
from search.space.space import Params, Space


class PointSampler(QmcHooks):
    """The space is known before the first trial, and the point is given by the trial's number."""

    def __init__(self, space: Space, number: int, *, seed: int, **options: Any) -> None:
        random = optuna.samplers.RandomSampler(seed=derived_seed(seed, number))
        super().__init__(
            index=number, seed=seed, independent_sampler=random, warn_independent_sampling=False, **options
        )
        self._space = space

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        distributions = distributions_of(self._space)
        return {name: distributions[name] for name in self._space.root if not distributions[name].single()}


class QmcProposer:
    """`options` are those of Optuna's QMCSampler."""

    def __init__(self, problem: Problem, seed: int, **options: Any) -> None:
        self._problem, self._seed, self._options = problem, seed, options

    def learn(self, observation: Observation) -> None:
        """Nothing to learn."""

    def source(self, _: int) -> Source:
        return "sequence"

    def propose(self, number: int) -> Params:
        return constrained_draw(self._problem.space, self._seed, number, lambda _: self._point(number), max_draws=1)

    def _point(self, number: int) -> Params:
        space = self._problem.space
        sampler = without_warning(PointSampler, space=space, number=number, seed=self._seed, **self._options)
        return ask(self._problem, sampler, [], number)
