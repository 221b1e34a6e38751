"""The Gaussian process learns about parameters that exist under conditions only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of
from search.samplers.optuna.gp.absent_values import AbsentValues
from search.samplers.optuna.gp.existence import existences_of, with_absent_values
from search.samplers.optuna.gp.model_space import place_of
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conftest import examples

pytestmark = [pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]

BRANCHES = Space.model_validate(
    {
        "branch": {"type": "categorical", "choices": ["a", "b"]},
        "x": {"type": "float", "low": 0, "high": 1, "when": {"branch": "a"}},
        "n": {"type": "int", "low": 1, "high": 50, "when": {"branch": "b"}},
        "y": {"type": "float", "low": 1e-4, "high": 1, "log": True, "when": {"n": {"min": 25}}},
    }
)


def loss(params: Params) -> float:
    """The least one, 0, is in the branch with the most parameters."""
    if params["branch"] == "a":
        return 0.3 + (float(str(params["x"])) - 0.3) ** 2
    n = int(str(params["n"]))
    far = (n - 40) ** 2 / 1000
    return far + (0.4 if n < 25 else 0.1 * (np.log10(float(str(params["y"]))) + 3) ** 2)


def completed(number: int, params: Params) -> Observation:
    value = loss(params)
    return Observation(
        number, params, "completed", (value,), last_step=9, last_value=value, rungs=((1, value + 1), (9, value))
    )


@pytest.mark.slow
@pytest.mark.parametrize("prunes", [False, True], ids=["whole", "early stopping"])
def test_it_finds_the_best_of_the_parameters_of_a_branch(*, prunes: bool) -> None:
    spec = SamplerSpec(sampler="gp", options={"n_startup_trials": 10})
    view = StudyView(Study(Problem(BRANCHES, ("minimize",), prunes=prunes), spec, 7))
    losses = []
    for number in range(30):
        params = view.propose([], number)
        assert BRANCHES.mistakes_in(params) == []
        view.update([completed(number, params)])
        losses.append(loss(params))
    assert min(losses) < 0.01
    assert np.median(losses[20:]) < 0.1


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_how_bad_a_bad_branch_is_makes_no_difference(direction: Direction) -> None:
    """Otherwise the good trials of another branch all look alike to the model."""
    study = Study(Problem(BRANCHES, (direction,)), SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    sign = 1 if direction == "minimize" else -1

    def proposed(bad: float) -> Params:
        branches: list[tuple[Params, float]] = [({"branch": "a", "x": n / 8}, (n / 8 - 0.4) ** 2) for n in range(8)]
        branches += [({"branch": "b", "n": n}, bad) for n in range(8, 11)]
        trials = [Observation(n, params, "completed", (sign * loss,)) for n, (params, loss) in enumerate(branches)]
        return propose(study, trials, 11)

    assert proposed(0.4) == proposed(0.5)


def frozen(space: Space, params: Params) -> FrozenTrial:
    observation = Observation(0, params, "completed", (0.0,))
    return frozen_trial_of(Problem(space, ("minimize",)), observation, distributions_of(space))


def places(trial: FrozenTrial, distributions: Mapping[str, BaseDistribution]) -> list[float]:
    """The point of the model's space."""
    return [
        place_of(one, trial.params[name])
        if isinstance(one, FloatDistribution | IntDistribution)
        else one.to_internal_repr(trial.params[name])
        for name, one in distributions.items()
    ]


@given(data=st.data())
@examples(60)
def test_the_model_sees_of_a_point_what_it_sees_of_the_trial_that_is_made_of_it(
    data: st.DataObject, draws: Any
) -> None:
    space: Space = data.draw(draws.spaces())
    distributions = {name: one for name, one in distributions_of(space).items() if not one.single()}
    if not distributions:
        return
    flat = Space.model_construct({name: one.model_copy(update={"when": {}}) for name, one in space.root.items()})
    everything = data.draw(draws.configurations(flat))
    existing = {name: everything[name] for name in space.active(everything)}
    [trial] = AbsentValues(space).added_to([frozen(space, existing)])
    point = torch.tensor([places(frozen(flat, everything), distributions)], dtype=torch.float64)
    found = with_absent_values(point, existences_of(space, distributions))
    assert found[0].tolist() == pytest.approx(places(trial, distributions), abs=1e-9)
