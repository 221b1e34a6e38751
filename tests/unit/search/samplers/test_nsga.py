"""NSGA-II proposes what a study of Optuna does, and NSGA-III what one that minimizes does."""

from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers import (
    NSGAIIISampler,
    NSGAIISampler,
    nsgaii,
)
from optuna.samplers._lazy_random_state import LazyRandomState
from optuna.samplers._nsgaiii._elite_population_selection_strategy import NSGAIIIElitePopulationSelectionStrategy
from optuna.samplers.nsgaii._elite_population_selection_strategy import NSGAIIElitePopulationSelectionStrategy

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Space
from search.study import Study, StudyView
from tests.unit.search.samplers.optuna_comparison import (
    CONDITIONAL,
    MIXED,
    conditional,
    mixed,
    of_optuna,
    of_paceline,
    study_of,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


class InOrder(NSGAIIElitePopulationSelectionStrategy):
    """Optuna orders the parents from best to worst for a generation's first child, and by number for the others."""

    def __call__(self, study: optuna.Study, population: list[optuna.trial.FrozenTrial]) -> Any:
        return sorted(super().__call__(study, population), key=lambda trial: trial.number)


@pytest.mark.parametrize("objectives", [1, 2])
@pytest.mark.parametrize(
    ("options", "operators"),
    [
        ({}, {}),
        ({"swapping_prob": 0.1}, {}),
        ({"mutation": "polynomial"}, {"mutation": nsgaii.PolynomialMutation}),
        ({"crossover": "blxalpha", "mutation_prob": 0.5}, {"crossover": nsgaii.BLXAlphaCrossover}),
        ({"crossover": "spx", "crossover_prob": 0.5}, {"crossover": nsgaii.SPXCrossover}),
    ],
    ids=str,
)
def test_nsga2_proposes_what_a_study_of_optuna_does(
    options: dict[str, Any], operators: dict[str, Any], objectives: int
) -> None:
    ours = SamplerSpec(sampler="nsga2", options={**options, "population_size": 6}, repeats=True)
    theirs = {**options, **{name: kind() for name, kind in operators.items()}}

    def sampler(seed: int) -> NSGAIISampler:
        select = InOrder(population_size=6)
        return NSGAIISampler(seed=seed, population_size=6, elite_population_selection_strategy=select, **theirs)

    study = study_of(MIXED, ours, objectives)
    assert of_paceline(study, 40) == of_optuna(study, 40, sampler, mixed)


def test_nsga2_draws_conditional_parameters_as_optuna_does() -> None:
    def sampler(seed: int) -> NSGAIISampler:
        return NSGAIISampler(
            seed=seed, population_size=6, elite_population_selection_strategy=InOrder(population_size=6)
        )

    study = study_of(CONDITIONAL, SamplerSpec(sampler="nsga2", options={"population_size": 6}, repeats=True), 2)
    assert of_paceline(study, 40) == of_optuna(study, 40, sampler, conditional)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sampler", ["nsga2", "nsga3"])
@pytest.mark.parametrize("crossover", ["blxalpha", "spx", "sbx", "vsbx", "undx"])
def test_children_of_parents_at_the_limits_of_floats_belong_to_the_space(crossover: str, sampler: str) -> None:
    space = Space.model_validate(
        {
            "log": {"type": "float", "low": 5e-324, "high": 1e308, "log": True},
            "wide": {"type": "float", "low": -8e307, "high": 8e307},
            "whole": {"type": "int", "low": -(2**53), "high": 2**53},
            "small": {"type": "float", "low": 0, "high": 1},
        }
    )
    spec = SamplerSpec(
        sampler=sampler, options={"population_size": 4, "crossover": crossover, "mutation": "polynomial"}
    )
    view, changes = StudyView(Study(Problem(space, ("minimize", "maximize")), spec, 7)), list[Observation]()
    for number in range(40):
        params = view.propose(changes, number)
        assert space.mistakes_in(params) == []
        changes = [Observation(number, params, "completed", ((-1) ** number * 1e308, number % 3))]


class Drawn(NSGAIIIElitePopulationSelectionStrategy):
    """Optuna uses the random numbers of the first trial that asks; here each generation has its own."""

    generation = 0

    def __call__(self, study: optuna.Study, population: list[optuna.trial.FrozenTrial]) -> Any:
        self.generation += 1
        self._rng = LazyRandomState(derived_seed(7, self.generation, 1))
        return sorted(super().__call__(study, population), key=lambda trial: trial.number)


@pytest.mark.parametrize("options", [{}, {"dividing_parameter": 2}, {"reference_points": [[1, 0, 0], [0, 1, 1]]}])
def test_nsga3_proposes_what_a_study_of_optuna_that_minimizes_does(options: dict[str, Any]) -> None:
    study = study_of(MIXED, SamplerSpec(sampler="nsga3", options={**options, "population_size": 8}, repeats=True), 3)
    points = {"reference_points": np.array(options["reference_points"])} if "reference_points" in options else options
    select = Drawn(population_size=8, rng=LazyRandomState(0), **points)

    def sampler(seed: int) -> NSGAIIISampler:
        return NSGAIIISampler(seed=seed, population_size=8, elite_population_selection_strategy=select)

    assert of_paceline(study, 40) == of_optuna(study, 40, sampler, mixed, minimized=True)


@pytest.mark.parametrize("options", [{}, {"reference_points": [[1, 0.1, 0.1], [0.1, 1, 0.1]]}])
@pytest.mark.parametrize("maximized", [(0,), (1, 2), (0, 1, 2)])
def test_nsga3_proposes_the_same_whether_a_loss_is_minimized_or_its_negative_maximized(
    options: dict[str, Any], maximized: tuple[int, ...]
) -> None:
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xyz"})
    spec = SamplerSpec(sampler="nsga3", options={**options, "population_size": 6})

    def proposals(maximized: tuple[int, ...]) -> list[list[Any]]:
        directions: list[Direction] = ["maximize" if index in maximized else "minimize" for index in range(3)]
        view, found = StudyView(Study(Problem(space, tuple(directions)), spec, 7)), list[list[Any]]()
        for number in range(40):
            found.append(list(view.propose([], number).values()))
            losses = (found[-1][0], 1 - found[-1][0] + found[-1][1], 1 - found[-1][1] + found[-1][2])
            values = tuple(-loss if index in maximized else loss for index, loss in enumerate(losses))
            view.update([Observation(number, dict(zip("xyz", found[-1], strict=True)), "completed", values)])
        return found

    assert proposals(maximized) == proposals(())
