"""Genetic algorithms for several objectives: NSGA-II and NSGA-III."""

from math import comb
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from optuna.samplers import nsgaii
from optuna.trial import FrozenTrial
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Feature, Observation, Problem
from search.samplers.constrained_draw import constrained_draw, derived_seed
from search.samplers.generations import Generations
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.bounded_crossover import BoundedCrossover
from search.samplers.optuna.frozen_trials import FrozenTrials
from search.samplers.optuna.nsga_sampler import ChildSampler, GivenNsga2, GivenNsga3, GivenPopulation, elite_of
from search.samplers.sampler import Sampler, Source, too_large
from search.space.space import Params

Probability = Annotated[float, Field(ge=0, le=1)]

CROSSOVERS: dict[str, type[nsgaii.BaseCrossover]] = {
    "uniform": nsgaii.UniformCrossover,
    "blxalpha": nsgaii.BLXAlphaCrossover,
    "spx": nsgaii.SPXCrossover,
    "sbx": nsgaii.SBXCrossover,
    "vsbx": nsgaii.VSBXCrossover,
    "undx": nsgaii.UNDXCrossover,
}

THREE_PARENT_CROSSOVERS = ("spx", "undx")

MAX_REFERENCE_POINTS = 100_000
"""Every trial of a generation is compared with each of them."""


class Nsga2(Sampler):
    """Optuna's NSGAIISampler. `crossover` and `mutation` name its operators, which keep their default options."""

    drawn_at_random: ClassVar[frozenset[Feature]] = frozenset({Feature.CONDITIONS})
    may_repeat: ClassVar[bool] = True

    population_size: Annotated[int, Field(ge=2)] = 50
    mutation: Literal["polynomial"] | None = None
    mutation_prob: Probability | None = None
    crossover: Literal["uniform", "blxalpha", "spx", "sbx", "vsbx", "undx"] = "uniform"
    crossover_prob: Probability = 0.9
    swapping_prob: Probability = 0.5

    @model_validator(mode="after")
    def _population_has_enough_parents(self) -> "Nsga2":
        parents = 3 if self.crossover in THREE_PARENT_CROSSOVERS else 2
        if self.population_size < parents:
            message = f"must be >= {parents}, the parents that crossover {self.crossover} takes"
            refuse(type(self).__name__, [Mistake(("population_size",), message)], self.model_dump())
        return self

    @property
    def learns_from_pruned_trials(self) -> bool:
        return False

    def proposer(self, problem: Problem, seed: int) -> "NsgaProposer":
        return NsgaProposer(problem, seed, self)

    def sampler(self, seed: int) -> GivenPopulation:
        return without_warning(GivenNsga2, seed=seed, **self._operators())

    def _operators(self) -> dict[str, Any]:
        options = self.model_dump(include=set(Nsga2.model_fields))
        mutation = without_warning(nsgaii.PolynomialMutation) if self.mutation else None
        return {**options, "crossover": self._crossover(), "mutation": mutation}

    def _crossover(self) -> nsgaii.BaseCrossover:
        options = {"swapping_prob": self.swapping_prob} if self.crossover == "uniform" else {}
        return BoundedCrossover(without_warning(CROSSOVERS[self.crossover], **options))


class Nsga3(Nsga2):
    """Optuna's NSGAIIISampler. Each of the `reference_points` has a distance from the best value of every objective."""

    reference_points: tuple[tuple[float, ...], ...] | None = Field(default=None, min_length=1)
    dividing_parameter: Annotated[int, Field(ge=1)] = 3

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        if self.reference_points is None:
            dividing = too_large("dividing_parameter", self.dividing_parameter, MAX_REFERENCE_POINTS)
            return dividing or self._too_many_points(len(problem.directions))
        return [
            Mistake(("search", "options", "reference_points", index), "must have a number for each objective")
            for index, point in enumerate(self.reference_points)
            if len(point) != len(problem.directions)
        ]

    def _too_many_points(self, objectives: int) -> list[Mistake]:
        count = comb(objectives + self.dividing_parameter - 1, self.dividing_parameter)
        message = (
            f"makes {count:,} reference points for {objectives} objectives; the maximum is {MAX_REFERENCE_POINTS:,}"
        )
        path = ("search", "options", "dividing_parameter")
        return [Mistake(path, message)] if count > MAX_REFERENCE_POINTS else []

    def sampler(self, seed: int) -> GivenPopulation:
        points = None if self.reference_points is None else np.array(self.reference_points, dtype=float)
        options = {"reference_points": points, "dividing_parameter": self.dividing_parameter}
        return without_warning(GivenNsga3, seed=seed, **options, **self._operators())


class NsgaProposer:
    """The parents of a generation are the best of the previous generation and its parents, in the order of numbers."""

    def __init__(self, problem: Problem, seed: int, options: Nsga2) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._trials = FrozenTrials(problem)
        self._parents = Generations(options.population_size, self._selected)

    def learn(self, observation: Observation) -> None:
        self._trials.learn(observation)

    def source(self, number: int) -> Source:
        return "model" if self._parents_of(number) else "start_up"

    def propose(self, number: int) -> Params:
        parents = self._parents_of(number)

        def draw(seed: int) -> Params:
            return ask(self._problem, ChildSampler(self._options.sampler(seed), self._problem, parents), [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw)

    def _parents_of(self, number: int) -> list[FrozenTrial]:
        return self._parents.after(self._trials.completed(number)) or []

    def _selected(
        self, parents: list[FrozenTrial] | None, population: list[FrozenTrial], generation: int
    ) -> list[FrozenTrial]:
        # A second number, because the seeds of generations must differ from those of trials.
        sampler = self._options.sampler(derived_seed(self._seed, generation, 1))
        candidates = [*population, *(parents or [])]
        if self._problem.curve_score:
            candidates = self._trials.ranked(candidates)
        return elite_of(self._problem, sampler, candidates)
