"""Random search."""

from typing import TYPE_CHECKING

import optuna

from search.samplers.base import Sampler
from search.samplers.constrained_draw import obeying
from search.samplers.optuna.ask import ask
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem

TRIES = 100
"""A proposal costs next to nothing, and with enough of them what is allowed is drawn evenly."""


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
        return obeying(self._problem, number, lambda seed: self._drawn(seed, number), tries=TRIES)

    def _drawn(self, seed: int, number: int) -> Params:
        return ask(self._problem, optuna.samplers.RandomSampler(seed=seed), [], number)
