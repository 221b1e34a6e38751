"""Quasi-Monte Carlo: the points of a low-discrepancy sequence."""

from typing import Literal

from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.qmc_sampler import PointSampler
from search.samplers.sampler import Sampler
from search.space.space import Params
from search.thread_safe_import import import_modules


class Qmc(Sampler):
    """Optuna's QMCSampler: trial `n` gets point `n` of the sequence, whatever the history is.

    Every parameter has a coordinate of its own, also a conditional one, whose coordinate is unused where it does not
    exist. With `scramble` the sequence depends on the seed.
    """

    qmc_type: Literal["sobol", "halton"] = "sobol"
    scramble: bool = False

    def proposer(self, problem: Problem, seed: int) -> "QmcProposer":
        import_modules("scipy.stats")
        return QmcProposer(problem, seed, self)


class QmcProposer:
    def __init__(self, problem: Problem, seed: int, options: Qmc) -> None:
        self._problem, self._seed, self._options = problem, seed, options

    def learn(self, observation: Observation) -> None:
        """Nothing to learn."""

    def propose(self, number: int) -> Params:
        return constrained_draw(self._problem.space, self._seed, number, lambda _: self._point(number), max_draws=1)

    def _point(self, number: int) -> Params:
        options = self._options.model_dump()
        sampler = without_warning(PointSampler, space=self._problem.space, number=number, seed=self._seed, **options)
        return ask(self._problem, sampler, [], number)
