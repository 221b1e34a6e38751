"""Points of a low-discrepancy sequence."""

from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.lazy_import import loaded
from search.samplers.base import Sampler, stream
from search.samplers.constrained_draw import obeying
from search.samplers.optuna.ask import ask, made
from search.samplers.optuna.conversion import distributions_of
from search.space.space import Params, Space

if TYPE_CHECKING:
    from search.problem import Observation, Problem


class Qmc(Sampler):
    """Optuna's QMCSampler: trial `n` is point `n` of the sequence, whatever the others are.

    Every parameter has its own coordinate, those under conditions too; where one does not exist its coordinate is left
    unused. `scramble` draws another sequence for each seed.
    """

    qmc_type: Literal["sobol", "halton"] = "sobol"
    scramble: bool = False

    def proposer(self, problem: "Problem") -> "QmcProposer":
        loaded("scipy.stats")
        return QmcProposer(problem, self)


class QmcProposer:
    def __init__(self, problem: "Problem", options: Qmc) -> None:
        self._problem, self._options = problem, options

    def learn(self, observation: "Observation") -> None:
        """Nothing to learn."""

    def propose(self, number: int) -> Params:
        return obeying(self._problem, number, lambda _: self._point(number), tries=1)

    def _point(self, number: int) -> Params:
        options = self._options.model_dump()
        sampler = made(_AtNumber, space=self._problem.space, number=number, seed=self._problem.seed, **options)
        return ask(self._problem, sampler, [], number)


class _AtNumber(optuna.samplers.QMCSampler):
    """Knows the space before the first trial, and the point by the trial's number instead of by counting."""

    def __init__(self, space: Space, number: int, *, seed: int, **options: Any) -> None:
        random = optuna.samplers.RandomSampler(seed=stream(seed, number))
        super().__init__(seed=seed, independent_sampler=random, warn_independent_sampling=False, **options)
        self._space, self._number = space, number

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        distributions = distributions_of(self._space)
        return {name: distributions[name] for name in self._space.root if not distributions[name].single()}

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:  # noqa: ARG002
        return self._number
