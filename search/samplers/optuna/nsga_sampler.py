"""The two steps of Optuna's NSGA samplers: selecting the parents, and sampling a child of given parents."""

from collections.abc import Sequence
from dataclasses import replace
from operator import mul
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseGASampler, NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial

from search.problem import Direction, Problem, sign_of
from search.samplers.optuna.ask import study_for
from search.samplers.optuna.conversion import joint_distributions_of
from search.samplers.optuna.frozen_trials import with_value


class GivenPopulation(BaseGASampler):
    """The sampler's parents, or the candidates to select them from, are given and not looked up in the study."""

    population: Sequence[FrozenTrial] = ()

    def get_trial_generation(self, study: optuna.Study, trial: FrozenTrial) -> int:  # noqa: ARG002
        return 1

    def get_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:  # noqa: ARG002
        return []

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:  # noqa: ARG002
        return list(self.population)


class GivenNsga2(GivenPopulation, NSGAIISampler):
    pass


class GivenNsga3(GivenPopulation, NSGAIIISampler):
    pass


def elite_of(problem: Problem, sampler: GivenPopulation, population: list[FrozenTrial]) -> list[FrozenTrial]:
    """The best of the population, as many as the sampler's population size, in the order of their numbers."""
    if isinstance(sampler, GivenNsga3):
        return _elite_by_losses(problem, sampler, population)
    return _selected(problem, sampler, population)


def _elite_by_losses(problem: Problem, sampler: GivenPopulation, population: list[FrozenTrial]) -> list[FrozenTrial]:
    """Reference points are seen from the least values; Optuna takes these for the best in either direction."""
    signs = [sign_of(direction) for direction in problem.directions]
    losses = [with_value(one, *map(mul, signs, one.values)) for one in population]
    minimize: Direction = "minimize"
    minimized = replace(problem, directions=(minimize,) * len(signs))
    known = {one.number: one for one in population}
    return [known[one.number] for one in _selected(minimized, sampler, losses)]


def _selected(problem: Problem, sampler: GivenPopulation, population: list[FrozenTrial]) -> list[FrozenTrial]:
    sampler.population = population
    with np.errstate(all="ignore"):  # between values at the limits of floats, distances are infinite
        best = sampler.select_parent(study_for(problem, sampler, [], 0), 1)
    return sorted(best, key=lambda trial: trial.number)


class ChildSampler(optuna.samplers.BaseSampler):
    """Samples a child of the parents. What it does not inherit is drawn at random; without parents, all of it."""

    def __init__(self, sampler: GivenPopulation, problem: Problem, parents: list[FrozenTrial]) -> None:
        self._sampler, self._problem = sampler, problem
        sampler.population = parents

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return joint_distributions_of(self._problem.space) if self._sampler.population else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space) if search_space else {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)
