"""Each sampler proposes what Optuna's does after the same trials, and a restart changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    TPESampler,
    nsgaii,
)
from optuna.samplers._lazy_random_state import LazyRandomState
from optuna.samplers._nsgaiii._elite_population_selection_strategy import NSGAIIIElitePopulationSelectionStrategy
from optuna.samplers.nsgaii._elite_population_selection_strategy import NSGAIIElitePopulationSelectionStrategy

from search.problem import Direction, Observation, Problem, SpaceExhausted
from search.samplers import SAMPLERS, SamplerSpec
from search.samplers.sampler import derived_seed
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conftest import examples
from tests.unit.search.conftest import outcome

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]

NUMBERS = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "depth": {"type": "int", "low": 1, "high": 9, "step": 2},
        "width": {"type": "int", "low": 8, "high": 512, "log": True},
        "drop": {"type": "float", "low": 0.0, "high": 0.5, "step": 0.125},
    }
)
MIXED = Space.model_validate(
    {**NUMBERS.model_dump(), "act": {"type": "categorical", "choices": ["relu", "gelu", "elu"]}}
)


def numbers(trial: optuna.Trial) -> Params:
    return {
        "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
        "depth": trial.suggest_int("depth", 1, 9, step=2),
        "width": trial.suggest_int("width", 8, 512, log=True),
        "drop": trial.suggest_float("drop", 0.0, 0.5, step=0.125),
    }


def mixed(trial: optuna.Trial) -> Params:
    return {**numbers(trial), "act": trial.suggest_categorical("act", ["relu", "gelu", "elu"])}


def score(params: Params) -> float:
    lr, depth, width = params["lr"], params["depth"], params["width"]
    assert isinstance(lr, float)
    assert isinstance(depth, int)
    assert isinstance(width, int)
    return float((np.log10(lr) + 2) ** 2 + (depth - 5) ** 2 / 8 + abs(width - 64) / 64)


def size(params: Params) -> float:
    width, drop = params["width"], params["drop"]
    assert isinstance(width, int)
    assert isinstance(drop, float)
    return width * (1 - drop)


DIRECTIONS: tuple[Direction, ...] = ("minimize", "maximize", "minimize")


def study_of(space: Space, sampler: SamplerSpec, objectives: int = 1, *, constrained: bool = False) -> Study:
    return Study(Problem(space, DIRECTIONS[:objectives], constrained), sampler, 7)


def observed(number: int, params: Params, objectives: int) -> Observation:
    values = (score(params), size(params), -size(params) - score(params))[:objectives]
    return Observation(number, params, "completed", values, 1, values[0])


def of_paceline(study: Study, count: int) -> list[Params]:
    """The proposals if one trial runs at a time."""
    view, found, changes = StudyView(study), list[Params](), list[Observation]()
    for number in range(count):
        found.append(view.propose(changes, number))
        changes = [observed(number, found[-1], len(study.problem.directions))]
    return found


def of_optuna(
    study: Study, count: int, sampler: Callable[[int], BaseSampler], suggest: Callable[[optuna.Trial], Params]
) -> list[Params]:
    """The same by Optuna with its own storage; each trial's random numbers are derived from (seed, number)."""
    optuna_study, found = optuna.create_study(directions=list(study.problem.directions)), list[Params]()
    for number in range(count):
        optuna_study.sampler = sampler(derived_seed(study.seed, number))
        trial = optuna_study.ask()
        found.append(suggest(trial))
        optuna_study.tell(trial, list(observed(number, found[-1], len(study.problem.directions)).values or ()))
    return found


@pytest.mark.parametrize("options", [{}, {"multivariate": True}, {"group": True, "multivariate": True}], ids=str)
@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.parametrize("constrained", [False, True])
def test_tpe_proposes_what_a_study_of_optuna_does(
    options: dict[str, Any], objectives: int, *, constrained: bool
) -> None:
    study = study_of(MIXED, SamplerSpec(options=options), objectives)
    history = [
        replace(observed(number, params, objectives), constraints=(size(params) - 100, -1) if constrained else None)
        for number, params in enumerate(of_paceline(study_of(MIXED, SamplerSpec(sampler="random")), 60))
    ]
    optuna_study = optuna.create_study(
        directions=list(study.problem.directions), sampler=TPESampler(seed=derived_seed(study.seed, 60), **options)
    )
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    assert propose(study, history, 60) == mixed(optuna_study.ask())


@pytest.mark.parametrize("alike", [False, True], ids=["all values differ", "some values are alike"])
def test_tpe_with_a_long_history_proposes_what_a_study_of_optuna_does(*, alike: bool) -> None:
    study = study_of(MIXED, SamplerSpec())
    drawn = of_paceline(study_of(MIXED, SamplerSpec(sampler="random")), 400)
    if alike:
        drawn[50] = {**drawn[50], "lr": drawn[20]["lr"]}
    history = [observed(number, params, 1) for number, params in enumerate(drawn)]
    optuna_study = optuna.create_study(direction="minimize")
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    view = StudyView(study, history)
    for number in range(400, 405):
        optuna_study.sampler = TPESampler(seed=derived_seed(study.seed, number))
        trial = optuna_study.ask()
        params = view.propose([], number)
        assert params == mixed(trial)
        optuna_study.tell(trial, score(params))
        view.update([observed(number, params, 1)])


def frozen_trial_of(observation: Observation) -> optuna.trial.FrozenTrial:
    """A completed trial of MIXED as a trial of Optuna."""
    return optuna.trial.create_trial(
        values=observation.values,
        params=observation.params,
        distributions={
            "lr": FloatDistribution(1e-4, 1.0, log=True),
            "depth": IntDistribution(1, 9, step=2),
            "width": IntDistribution(8, 512, log=True),
            "drop": FloatDistribution(0.0, 0.5, step=0.125),
            "act": CategoricalDistribution(["relu", "gelu", "elu"]),
        },
        constraints={str(index): value for index, value in enumerate(observation.constraints or ())} or None,
    )


class Steady(CmaEsSampler):
    """Optuna draws a number when it creates an optimizer. Here later draws do not depend on that."""

    def __init__(self, *, seed: int, **options: Any) -> None:
        super().__init__(seed=seed, warn_independent_sampling=False, **options)
        self.seed = seed

    def _init_optimizer(self, trans: Any, direction: Any) -> Any:
        optimizer = super()._init_optimizer(trans, direction)
        self._cma_rng = LazyRandomState(self.seed)
        return optimizer


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"popsize": 5, "n_startup_trials": 4},
        {"use_separable_cma": True},
        {"lr_adapt": True},
        {"with_margin": True},
    ],
    ids=str,
)
def test_cmaes_proposes_what_a_study_of_optuna_does(options: dict[str, Any]) -> None:
    study = study_of(NUMBERS, SamplerSpec(sampler="cmaes", options=options))
    ours = of_paceline(study, 60)
    # Optuna's optimizer has different rounding errors, because `tell` comes after `ask`.
    for one, other in zip(ours, of_optuna(study, 60, lambda seed: Steady(seed=seed, **options), numbers), strict=True):
        assert one == pytest.approx(other, rel=1e-6)


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
    ours = SamplerSpec(sampler="nsga2", options={**options, "population_size": 6})
    theirs = {**options, **{name: kind() for name, kind in operators.items()}}

    def sampler(seed: int) -> NSGAIISampler:
        select = InOrder(population_size=6)
        return NSGAIISampler(seed=seed, population_size=6, elite_population_selection_strategy=select, **theirs)

    study = study_of(MIXED, ours, objectives)
    assert of_paceline(study, 40) == of_optuna(study, 40, sampler, mixed)


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
def test_nsga3_proposes_what_a_study_of_optuna_does(options: dict[str, Any]) -> None:
    study = study_of(MIXED, SamplerSpec(sampler="nsga3", options={**options, "population_size": 8}), 3)
    points = {"reference_points": np.array(options["reference_points"])} if "reference_points" in options else options
    select = Drawn(population_size=8, rng=LazyRandomState(0), **points)

    def sampler(seed: int) -> NSGAIIISampler:
        return NSGAIIISampler(seed=seed, population_size=8, elite_population_selection_strategy=select)

    assert of_paceline(study, 40) == of_optuna(study, 40, sampler, mixed)


@pytest.mark.parametrize("options", [{}, {"scramble": True}, {"qmc_type": "halton"}], ids=str)
def test_qmc_proposes_the_points_of_optunas_sequence(options: dict[str, Any]) -> None:
    study = study_of(MIXED, SamplerSpec(sampler="qmc", options=options))
    # Optuna learns the space from its first trial, so its sequence begins with the second trial.
    theirs = of_optuna(
        study, 33, lambda _: QMCSampler(seed=study.seed, warn_independent_sampling=False, **options), mixed
    )
    assert of_paceline(study, 32) == theirs[1:]


@pytest.mark.parametrize(("objectives", "constrained"), [pytest.param(1, False, marks=pytest.mark.slow), (1, True)])
def test_gp_proposes_what_a_study_of_optuna_does(objectives: int, *, constrained: bool) -> None:
    study = study_of(MIXED, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), objectives)
    history = [
        replace(observed(number, params, objectives), constraints=(size(params) - 100,) if constrained else None)
        for number, params in enumerate(of_paceline(study_of(MIXED, SamplerSpec(sampler="random")), 8))
    ]
    optuna_study = optuna.create_study(
        directions=list(study.problem.directions),
        sampler=GPSampler(seed=derived_seed(7, 8), n_startup_trials=4, warn_independent_sampling=False),
    )
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    assert propose(study, history, 8) == mixed(optuna_study.ask())


EVERYTHING = [
    SamplerSpec(),
    SamplerSpec(options={"n_startup_trials": 2, "group": True}),
    SamplerSpec(sampler="random"),
    SamplerSpec(sampler="grid"),
    SamplerSpec(sampler="cmaes", options={"popsize": 4}),
    SamplerSpec(sampler="cmaes", options={"popsize": 4, "with_margin": True, "n_startup_trials": 3}),
    SamplerSpec(sampler="cmaes", options={"popsize": 4, "use_separable_cma": True, "consider_pruned_trials": True}),
    SamplerSpec(sampler="nsga2", options={"population_size": 4}),
    SamplerSpec(sampler="nsga2", options={"population_size": 4, "crossover": "undx", "mutation": "polynomial"}),
    SamplerSpec(sampler="nsga3", options={"population_size": 4, "crossover": "sbx"}),
    SamplerSpec(sampler="qmc", options={"scramble": True}),
    SamplerSpec(sampler="qmc", options={"qmc_type": "halton"}),
    SamplerSpec(sampler="brute_force"),
    SamplerSpec(sampler="brute_force", options={"avoid_premature_stop": True}),
    SamplerSpec(sampler="auto"),
]


@given(data=st.data(), sampler=st.sampled_from(EVERYTHING))
@examples(150)
def test_a_proposal_belongs_to_any_space_and_is_the_same_after_a_restart(
    data: st.DataObject, draws: Any, sampler: SamplerSpec
) -> None:
    space = data.draw(draws.spaces(finite=True if sampler.sampler in ("brute_force", "grid") else None))
    space = data.draw(draws.forbidden(space))
    study = Study(Problem(space, ("minimize",), max_trials=2000), sampler, 7)
    assume(sampler.mistakes_with(study.problem) == [])
    view, known = StudyView(study), dict[int, Observation]()
    for _ in range(data.draw(st.integers(1, 3))):
        changes = data.draw(draws.histories(space, max_size=12, numbers=20))
        known |= {observation.number: observation for observation in changes}
        number = data.draw(st.integers(0, 22))
        proposed = outcome(view.propose, changes, number)
        assert isinstance(proposed, str) or space.mistakes_in(proposed) == []
        assert outcome(propose, study, data.draw(st.permutations(list(known.values()))), number) == proposed


@pytest.mark.slow
def test_gp_stays_in_the_space_and_proposes_the_same_after_a_restart() -> None:
    study = study_of(MIXED, SamplerSpec(sampler="gp", options={"n_startup_trials": 2}))
    history = [observed(number, propose(study, [], number), 1) for number in range(3)]
    history += [Observation(3, propose(study, [], 3), "running"), Observation(4, propose(study, [], 4), "diverged")]
    view = StudyView(study, history)
    assert MIXED.mistakes_in(view.propose([], 5)) == []
    assert view.propose([], 6) == propose(study, history[::-1], 6)


def test_cmaes_supports_a_space_of_a_single_configuration() -> None:
    only = Space.model_validate({"a": {"type": "float", "low": 0.5, "high": 0.5}})
    study = study_of(only, SamplerSpec(sampler="cmaes", options={"popsize": 4}))
    history = [Observation(number, {"a": 0.5}, "completed", (1.0,)) for number in range(9)]
    assert propose(study, history, 9) == {"a": 0.5}


def test_a_late_trial_belongs_to_the_generation_of_its_number() -> None:
    study = study_of(NUMBERS, SamplerSpec(sampler="cmaes", options={"popsize": 4}))
    history = [observed(number, params, 1) for number, params in enumerate(of_paceline(study, 30))]
    view = StudyView(
        study, [replace(one, status="running", values=None) if one.number in (3, 9) else one for one in history]
    )
    without = view.propose([], 30)
    assert view.propose([history[9], history[3]], 30) == propose(study, history, 30) != without


def test_brute_force_tries_each_configuration_once_and_may_repeat_running_ones() -> None:
    space = Space.model_validate({"a": {"type": "int", "low": 1, "high": 3}, "b": MIXED.root["act"]})
    once = walked(study_of(space, SamplerSpec(sampler="brute_force")))
    found = [Observation(number, params, "running") for number, params in enumerate(once)]
    assert len({repr(one.params) for one in found}) == len(found) == 9
    patient = study_of(space, SamplerSpec(sampler="brute_force", options={"avoid_premature_stop": True}))
    assert propose(patient, found, 9) in [one.params for one in found]
    over = [replace(one, status="failed") for one in found]
    assert propose(patient, [*over[:4], found[4], *over[5:]], 9) == found[4].params
    with pytest.raises(SpaceExhausted, match="all 9 configurations"):
        propose(patient, over, 9)


def walked(study: Study) -> list[Params]:
    view, found = StudyView(study), list[Params]()
    while not isinstance(proposed := outcome(view.propose, [], len(found)), str):
        view.update([Observation(len(found), proposed, "running")])
        found.append(proposed)
    return found


A_NUMBER = {"type": "int", "low": 0, "high": 9}
ONE_OF_TWO = {"type": "categorical", "choices": ["x", "y"]}
UNDER_X = {"type": "float", "low": 0, "high": 1, "when": {"c": "x"}}


@pytest.mark.parametrize(
    ("space", "facts", "needed"),
    [
        ({"c": ONE_OF_TWO}, {}, "categorical parameters"),
        (
            {"n": {"type": "int", "low": 0, "high": 1}, "p": {**UNDER_X, "when": {"n": 0}}},
            {},
            "parameters under conditions",
        ),
        ({"n": {"type": "int", "low": 0, "high": 1}}, {"directions": ("minimize",) * 2}, "several objectives"),
        ({"n": {"type": "int", "low": 0, "high": 1}}, {"constrained": True}, "constraints"),
    ],
)
def test_a_sampler_names_what_it_does_not_support_and_which_samplers_do(
    space: dict[str, Any], facts: dict[str, Any], needed: str
) -> None:
    asked = Problem(Space.model_validate(space), **{"directions": ("minimize",), **facts})
    (mistake,) = SamplerSpec(sampler="cmaes").mistakes_with(asked)
    able = [
        name for name in SAMPLERS if name not in ("gp", "grid") and SamplerSpec(sampler=name).mistakes_with(asked) == []
    ]
    assert str(mistake).startswith(f"search.sampler: cmaes does not support {needed}; these samplers do: auto, tpe")
    assert all(name in str(mistake) for name in able)
    assert SamplerSpec().mistakes_with(asked) == []


def test_cmaes_ignores_a_single_choice_and_searches_a_single_number() -> None:
    space = Space.model_validate(
        {"c": {"type": "categorical", "choices": ["x"]}, "n": {"type": "int", "low": 0, "high": 9}}
    )
    for options in ({}, {"use_separable_cma": True}, {"with_margin": True}):
        sampler = SamplerSpec(sampler="cmaes", options=options)
        assert sampler.mistakes_with(Problem(space, ("minimize",))) == []
        history = [Observation(n, {"c": "x", "n": n}, "completed", (n,)) for n in range(9)]
        assert space.mistakes_in(propose(study_of(space, sampler), history, 9)) == []


FLAT = {name: {"type": "float", "low": 0, "high": 1} for name in "abcdef"}


@pytest.mark.parametrize(
    ("space", "facts", "chosen"),
    [
        ({"c": ONE_OF_TWO}, {"max_trials": 2}, "brute_force"),
        ({"c": ONE_OF_TWO}, {"max_trials": 1}, "gp"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 50}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 4}, "gp"),
        (FLAT, {"max_trials": 100, "parallelism": 4, "prunes": True}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 50}, "tpe"),
        (FLAT, {"max_trials": 20, "prunes": True, "population": True}, "qmc"),
        (
            {"c": ONE_OF_TWO, "p": UNDER_X},
            {"max_trials": 20, "population": True, "directions": ("minimize",) * 2},
            "qmc",
        ),
        (FLAT, {"max_trials": 1000}, "tpe"),
        (FLAT, {"max_trials": 5000}, "cmaes"),
        (FLAT, {"max_trials": 5000, "constrained": True}, "tpe"),
        (FLAT, {}, "cmaes"),
        (FLAT, {"max_trials": 100, "directions": ("minimize",) * 2}, "tpe"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 2}, "nsga2"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 4}, "nsga3"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 5000, "directions": ("minimize",) * 4}, "tpe"),
    ],
)
def test_auto_chooses_for_the_problem_and_gives_the_reason(
    space: dict[str, Any], facts: dict[str, Any], chosen: str
) -> None:
    asked = Problem(Space.model_validate(space), **{"directions": ("minimize",), **facts})
    choice = SamplerSpec(sampler="auto").chosen_for(asked)
    assert choice.name == chosen
    assert choice.reason
    assert SamplerSpec(sampler=chosen).mistakes_with(asked) == []
