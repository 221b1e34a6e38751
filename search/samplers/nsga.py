"""Genetic algorithms for several objectives: NSGA-II and NSGA-III."""

from math import comb
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIIISampler, NSGAIISampler, nsgaii
from optuna.trial import FrozenTrial
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Need
from search.samplers.base import Sampler, stream, too_large
from search.samplers.constrained_draw import obeying
from search.samplers.generations import Generations
from search.samplers.optuna.ask import ask, made, study_of
from search.samplers.optuna.conversion import searched
from search.samplers.optuna.crossover import Bounded
from search.samplers.optuna.history import History
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting

Chance = Annotated[float, Field(ge=0, le=1)]

CROSSOVERS: dict[str, type[nsgaii.BaseCrossover]] = {
    "uniform": nsgaii.UniformCrossover,
    "blxalpha": nsgaii.BLXAlphaCrossover,
    "spx": nsgaii.SPXCrossover,
    "sbx": nsgaii.SBXCrossover,
    "vsbx": nsgaii.VSBXCrossover,
    "undx": nsgaii.UNDXCrossover,
}

OF_THREE = ("spx", "undx")
"""The crossovers that take three parents."""

MOST_POINTS = 100_000
"""Every trial of a generation is held against each of them."""


class Nsga2(Sampler):
    """Optuna's NSGAIISampler; `crossover` and `mutation` are the names of its operators, which keep their defaults."""

    cannot: ClassVar[frozenset[Need]] = frozenset({Need.CONDITIONS})

    population_size: Annotated[int, Field(ge=2)] = 50
    mutation: Literal["polynomial"] | None = None
    mutation_prob: Chance | None = None
    crossover: Literal["uniform", "blxalpha", "spx", "sbx", "vsbx", "undx"] = "uniform"
    crossover_prob: Chance = 0.9
    swapping_prob: Chance = 0.5

    @model_validator(mode="after")
    def _enough_parents(self) -> "Nsga2":
        parents = 3 if self.crossover in OF_THREE else 2
        if self.population_size < parents:
            message = f"must be >= {parents}, the parents that crossover {self.crossover} takes"
            refuse(type(self).__name__, [Mistake(("population_size",), message)], self.model_dump())
        return self

    def proposer(self, problem: "Problem") -> "NsgaProposer":
        return NsgaProposer(problem, self)

    def sampler(self, seed: int) -> NSGAIISampler | NSGAIIISampler:
        return made(NSGAIISampler, seed=seed, **self._operators())

    def _operators(self) -> dict[str, Any]:
        options = self.model_dump(include=set(Nsga2.model_fields))
        mutation = made(nsgaii.PolynomialMutation) if self.mutation else None
        return {**options, "crossover": self._crossover(), "mutation": mutation}

    def _crossover(self) -> nsgaii.BaseCrossover:
        swapping = {"swapping_prob": self.swapping_prob} if self.crossover == "uniform" else {}
        return Bounded(made(CROSSOVERS[self.crossover], **swapping))


class Nsga3(Nsga2):
    """Optuna's NSGAIIISampler. `reference_points`: each with a coordinate for every objective."""

    reference_points: tuple[tuple[float, ...], ...] | None = Field(default=None, min_length=1)
    dividing_parameter: Annotated[int, Field(ge=1)] = 3

    def unsuited(self, setting: "Setting") -> list[Mistake]:
        if self.reference_points is None:
            dividing = too_large("dividing_parameter", self.dividing_parameter, MOST_POINTS)
            return dividing or self._too_many_points(setting.objective_count)
        return [
            Mistake(("search", "options", "reference_points", index), "must have a number for each objective")
            for index, point in enumerate(self.reference_points)
            if len(point) != setting.objective_count
        ]

    def _too_many_points(self, objectives: int) -> list[Mistake]:
        count = comb(objectives + self.dividing_parameter - 1, self.dividing_parameter)
        message = (
            f"makes {count:,} reference points of {objectives} objectives, and more than {MOST_POINTS:,} are too many"
        )
        path = ("search", "options", "dividing_parameter")
        return [Mistake(path, message)] if count > MOST_POINTS else []

    def sampler(self, seed: int) -> NSGAIIISampler:
        points = None if self.reference_points is None else np.array(self.reference_points, dtype=float)
        options = {"reference_points": points, "dividing_parameter": self.dividing_parameter}
        return made(NSGAIIISampler, seed=seed, **options, **self._operators())


class NsgaProposer:
    """Each generation's parents are the best of the generation before and of its parents, in the order of numbers."""

    def __init__(self, problem: "Problem", options: Nsga2) -> None:
        self._problem, self._options = problem, options
        self._history = History(problem)
        self._parents = Generations(options.population_size, self._selected)

    def learn(self, observation: "Observation") -> None:
        self._history.learn(observation)

    def propose(self, number: int) -> Params:
        parents = self._parents.after(self._history.completed(number))
        return obeying(
            self._problem, number, lambda seed: ask(self._problem, self._child(seed, parents or []), [], number)
        )

    def _child(self, seed: int, parents: list[FrozenTrial]) -> "_Child":
        return _Child(self._options.sampler(seed), self._problem, parents)

    def _selected(
        self, parents: list[FrozenTrial] | None, population: list[FrozenTrial], generation: int
    ) -> list[FrozenTrial]:
        # The numbers of generations must not meet those of trials, or their random numbers would be the same.
        sampler = self._options.sampler(stream(self._problem.seed, generation, 1))
        select = sampler._elite_population_selection_strategy  # noqa: SLF001
        with np.errstate(all="ignore"):  # between values at the limits of floats, distances are infinite
            best = select(study_of(self._problem, sampler, [], 0), [*population, *(parents or [])])
        return sorted(best, key=lambda trial: trial.number)


class _Child(optuna.samplers.BaseSampler):
    """A child of known parents; what it does not inherit, and all of the first generation, is drawn at random."""

    def __init__(self, sampler: NSGAIISampler | NSGAIIISampler, problem: "Problem", parents: list[FrozenTrial]) -> None:
        self._sampler, self._problem, self._parents = sampler, problem, parents

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        return searched(self._problem.space) if self._parents else {}

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
