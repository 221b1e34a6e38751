"""The Gaussian process proposes what a study of Optuna does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.samplers import (
    GPSampler,
)

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.unit.search.samplers.optuna_comparison import (
    CONDITIONAL,
    MIXED,
    conditional,
    frozen_trial_of,
    mixed,
    observed,
    of_paceline,
    size,
    study_of,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


@pytest.mark.parametrize(
    ("space", "suggest", "constrained"),
    [
        pytest.param(MIXED, mixed, False, marks=pytest.mark.slow),
        (MIXED, mixed, True),
        pytest.param(CONDITIONAL, conditional, False, marks=pytest.mark.slow),
    ],
    ids=["numbers and choices", "constrained", "conditional"],
)
def test_gp_proposes_what_a_study_of_optuna_does(
    space: Space, suggest: Callable[[optuna.Trial], Params], *, constrained: bool
) -> None:
    study = study_of(space, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}))
    history = [
        replace(observed(number, params, 1), constraints=(size(params) - 100,) if constrained else None)
        for number, params in enumerate(of_paceline(study_of(space, SamplerSpec(sampler="random")), 8))
    ]
    optuna_study = optuna.create_study(
        directions=list(study.problem.directions),
        sampler=GPSampler(seed=derived_seed(7, 8), n_startup_trials=4, warn_independent_sampling=False),
    )
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    assert propose(study, history, 8) == suggest(optuna_study.ask())


@pytest.mark.slow
def test_gp_stays_in_the_space_and_proposes_the_same_after_a_restart() -> None:
    study = study_of(MIXED, SamplerSpec(sampler="gp", options={"n_startup_trials": 2}))
    history = [observed(number, propose(study, [], number), 1) for number in range(3)]
    history += [Observation(3, propose(study, [], 3), "running"), Observation(4, propose(study, [], 4), "diverged")]
    view = StudyView(study, history)
    assert MIXED.mistakes_in(view.propose([], 5)) == []
    assert view.propose([], 6) == propose(study, history[::-1], 6)


@pytest.mark.parametrize(
    ("parameters", "facts", "given", "count"),
    [
        (1, {}, None, 5),
        (3, {"max_trials": 100}, None, 7),
        (6, {"max_trials": 100}, None, 10),
        (20, {}, None, 10),
        (3, {"max_trials": 20}, None, 5),
        (3, {"max_trials": 7}, None, 4),
        (3, {"max_trials": 7, "prunes": True}, None, 10),  # most of the draws are stopped early
        (20, {"max_trials": 7}, 12, 12),
        (20, {"max_trials": 7}, 0, 1),
    ],
)
def test_the_model_starts_the_earlier_the_fewer_parameters_and_trials_there_are(
    parameters: int, facts: dict[str, Any], given: int | None, count: int
) -> None:
    space = Space.model_validate({f"x{index}": {"type": "float", "low": 0, "high": 1} for index in range(parameters)})
    problem = Problem(space, ("minimize",), **facts)
    view = StudyView(Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": given}), 7))
    for number in range(count):
        assert view.source(number) == "start_up"
        params: Params = dict.fromkeys(space.root, (number + 1) / (count + 1))
        view.update([Observation(number, params, "completed", (float(number),))])
    assert view.source(count) == "model"
