"""TPE on a history that is kept as columns."""

from typing import Any

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.optuna.ask import ask
from search.samplers.optuna.tpe.history import TpeHistory
from search.samplers.optuna.tpe.sampler import HistoryTpeSampler
from search.samplers.sampler import Source
from search.space.space import Params


class ColumnsProposer:
    """Keeps the history as columns of numbers, so that a proposal converts only what is new.

    `options` are those of Optuna's TPESampler.
    """

    def __init__(self, problem: Problem, seed: int, *, constant_liar: bool, **options: Any) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._constant_liar = constant_liar
        self._history = TpeHistory(problem)

    def learn(self, observation: Observation) -> None:
        self._history.learn(observation)

    def source(self, number: int) -> Source:
        known = len(self._history.ended(self._history.without(number, running=False)))
        return "model" if known >= self._options["n_startup_trials"] else "start_up"

    def propose(self, number: int) -> Params:
        rows = self._history.without(number, running=self._constant_liar)

        def draw(seed: int) -> Params:
            sampler = HistoryTpeSampler(history=self._history, rows=rows, seed=seed, **self._options)
            return ask(self._problem, sampler, [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw)
