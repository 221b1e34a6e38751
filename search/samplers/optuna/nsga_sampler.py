"""The two steps of Optuna's NSGA samplers: selecting the parents, and sampling a child of given parents."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial

from search.problem import Problem
from search.samplers.optuna.ask import study_for
from search.samplers.optuna.conversion import joint_distributions_of


def elite_of(
    problem: Problem, sampler: NSGAIISampler | NSGAIIISampler, population: list[FrozenTrial]
) -> list[FrozenTrial]:
    """The best of the population, as many as the sampler's population size, in the order of their numbers."""
    select = sampler._elite_population_selection_strategy  # noqa: SLF001
    with np.errstate(all="ignore"):  # between values at the limits of floats, distances are infinite
        best = select(study_for(problem, sampler, [], 0), population)
    return sorted(best, key=lambda trial: trial.number)


class ChildSampler(optuna.samplers.BaseSampler):
    """Samples a child of the parents. What it does not inherit is drawn at random; without parents, all of it."""

    def __init__(self, sampler: NSGAIISampler | NSGAIIISampler, problem: Problem, parents: list[FrozenTrial]) -> None:
        self._sampler, self._problem, self._parents = sampler, problem, parents

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return joint_distributions_of(self._problem.space) if self._parents else {}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        child: dict[str, Any] = self._sampler._child_generation_strategy(study, search_space, self._parents)  # noqa: SLF001
        return child

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)
