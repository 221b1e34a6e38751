"""TPE proposes what a study of Optuna does."""

from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.samplers import (
    TPESampler,
)

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Space
from search.study import Study, StudyView, propose
from tests.unit.search.samplers.optuna_comparison import (
    CONDITIONAL,
    MIXED,
    conditional,
    frozen_trial_of,
    mixed,
    observed,
    of_every_status,
    of_paceline,
    score,
    size,
    study_of,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


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


@pytest.mark.parametrize("options", [{}, {"multivariate": False}, {"group": True, "multivariate": True}], ids=str)
@pytest.mark.parametrize("constrained", [False, True])
def test_tpe_after_a_thousand_trials_of_every_status_proposes_what_optuna_does(
    options: dict[str, Any], *, constrained: bool
) -> None:
    """Parameters have conditions. 1,000 trials are enough for the kernels to be sorted, and for weights to differ."""
    study = study_of(CONDITIONAL, SamplerSpec(options=options), constrained=constrained)
    history = of_every_status(CONDITIONAL, 1000, constrained=constrained)
    optuna_study = optuna.create_study(direction="minimize")
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    view = StudyView(study, history[::-1])
    for number in range(1000, 1002):
        optuna_study.sampler = TPESampler(seed=derived_seed(study.seed, number), **options)
        trial = optuna_study.ask()
        params = view.propose([], number)
        assert params == conditional(trial)
        optuna_study.tell(trial, score(params))
        view.update([observed(number, params, 1)])


LR_AND_WIDTH = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
        "width": {"type": "float", "low": 0.0, "high": 1.0},
    }
)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_region_that_diverges_under_constraints_does_not_attract_the_search(seed: int) -> None:
    """Two of the seeds with which the search found nothing feasible: what diverged reported a constraint that held."""
    view = StudyView(Study(Problem(LR_AND_WIDTH, ("minimize",), constrained=True), SamplerSpec(), seed))
    feasible_count = diverged_count = 0
    for number in range(60):
        params = view.propose([], number)
        lr, width = float(params["lr"]), float(params["width"])  # type: ignore[arg-type]
        if lr > 1e-2:
            diverged_count += 1
            view.update([Observation(number, params, "diverged", constraints=(-1.0,))])
        else:
            feasible_count += width <= 0.02
            view.update([Observation(number, params, "completed", (lr,), constraints=(width - 0.02,))])
    assert feasible_count > 0
    assert diverged_count < 30
