"""Random search."""

from typing import TYPE_CHECKING

import optuna

from search.samplers.asking import ask
from search.samplers.base import Sampler, stream
from search.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem


class Random(Sampler):
    """Optuna's RandomSampler: each proposal on its own, whatever the history."""

    def proposer(self, problem: "Problem") -> "RandomProposer":
        return RandomProposer(problem)


class RandomProposer:
    def __init__(self, problem: "Problem") -> None:
        self._problem = problem

    def learn(self, observation: "Observation") -> None:
        """Nothing to learn."""

    def propose(self, number: int) -> Params:
        sampler = optuna.samplers.RandomSampler(seed=stream(self._problem.seed, number))
        return ask(self._problem, sampler, [], number)
