"""Random search."""

from typing import ClassVar

import optuna

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.optuna.ask import ask
from search.samplers.sampler import Sampler, Source
from search.space.space import Params

MAX_DRAWS = 100
"""A draw costs next to nothing, and with enough of them the allowed configurations are drawn uniformly."""


class Random(Sampler):
    """Optuna's RandomSampler: each proposal is independent of the history."""

    learns: ClassVar[bool] = False

    def proposer(self, problem: Problem, seed: int) -> "RandomProposer":
        return RandomProposer(problem, seed)


class RandomProposer:
    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._seed = problem, seed

    def learn(self, observation: Observation) -> None:
        """Nothing to learn."""

    def source(self, _: int) -> Source:
        return "random"

    def propose(self, number: int) -> Params:
        def draw(seed: int) -> Params:
            return ask(self._problem, optuna.samplers.RandomSampler(seed=seed), [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw, max_draws=MAX_DRAWS)
