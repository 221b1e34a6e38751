"""CMA-ES proposes what a study of Optuna does, by generations of trial numbers."""

from dataclasses import replace
from typing import Any

import pytest
from optuna.samplers import (
    CmaEsSampler,
)
from optuna.samplers._lazy_random_state import LazyRandomState

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.cmaes_sampler import EvolvedCmaEsSampler
from search.space.space import Space
from search.study import StudyView, propose
from tests.unit.search.samplers.optuna_comparison import (
    CONDITIONAL,
    NUMBERS,
    conditional,
    numbers,
    observed,
    of_optuna,
    of_paceline,
    study_of,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


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


def test_cmaes_draws_categoricals_and_conditional_parameters_as_optuna_does() -> None:
    study = study_of(CONDITIONAL, SamplerSpec(sampler="cmaes", options={"popsize": 5}))
    theirs = of_optuna(study, 40, lambda seed: Steady(seed=seed, popsize=5), conditional)
    for one, other in zip(of_paceline(study, 40), theirs, strict=True):
        assert one.pop("act") == other.pop("act")
        assert one == pytest.approx(other, rel=1e-6)


def test_cmaes_supports_a_space_of_a_single_configuration() -> None:
    only = Space.model_validate({"a": {"type": "float", "low": 0.5, "high": 0.5}})
    study = study_of(only, SamplerSpec(sampler="cmaes", options={"popsize": 4}))
    history = [Observation(number, {"a": 0.5}, "completed", (1.0,)) for number in range(9)]
    assert propose(study, history, 9) == {"a": 0.5}


def test_cmaes_ignores_a_single_choice_and_searches_a_single_number() -> None:
    space = Space.model_validate(
        {"c": {"type": "categorical", "choices": ["x"]}, "n": {"type": "int", "low": 0, "high": 9}}
    )
    for options in ({}, {"use_separable_cma": True}, {"with_margin": True}):
        sampler = SamplerSpec(sampler="cmaes", options=options)
        assert sampler.mistakes_with(Problem(space, ("minimize",))) == []
        history = [Observation(n, {"c": "x", "n": n}, "completed", (n,)) for n in range(9)]
        assert space.mistakes_in(propose(study_of(space, sampler), history, 9)) == []


def test_a_late_trial_belongs_to_the_generation_of_its_number() -> None:
    study = study_of(NUMBERS, SamplerSpec(sampler="cmaes", options={"popsize": 4}))
    history = [observed(number, params, 1) for number, params in enumerate(of_paceline(study, 30))]
    view = StudyView(
        study, [replace(one, status="running", values=None) if one.number in (3, 9) else one for one in history]
    )
    without = view.propose([], 30)
    assert view.propose([history[9], history[3]], 30) == propose(study, history, 30) != without


@pytest.mark.parametrize("options", [{}, {"with_margin": True}], ids=str)
def test_evolving_everything_again_takes_one_sampler_for_each_generation(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(NUMBERS, SamplerSpec(sampler="cmaes", options={"popsize": 10, **options}))
    history = [observed(number, params, 1) for number, params in enumerate(of_paceline(study, 100))]
    seeds, construct = list[int](), EvolvedCmaEsSampler.__init__

    def note(sampler: EvolvedCmaEsSampler, *arguments: Any, seed: int, **others: Any) -> None:
        seeds.append(seed)
        construct(sampler, *arguments, seed=seed, **others)

    monkeypatch.setattr(EvolvedCmaEsSampler, "__init__", note)
    propose(study, history, 100)
    assert len(seeds) == 9 + 1  # the first trial is in no generation, and one sampler proposes
