"""`gp` where the gain of the dominated volume would take long: each proposal is for a random trade-off."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Direction, Observation, Problem, sign_of
from search.samplers import SamplerSpec
from search.samplers.optuna.gp import scalarized as scalarized_objectives
from search.samplers.optuna.gp.losses import Array
from search.samplers.optuna.gp.scalarized import scalarized
from search.space.space import Params, Space
from search.study import Study, StudyView

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]

SPACE = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xyz"})
DRAWN = 4
LOSSES: st.SearchStrategy[Array] = st.lists(
    st.tuples(*[st.integers(-1000, 1000).map(float)] * 3), min_size=2, max_size=12, unique=True
).map(np.array)
WEIGHTS: st.SearchStrategy[Array] = st.tuples(*[st.floats(0.01, 1)] * 3).map(np.array)


@pytest.fixture
def always_scalarized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalarized_objectives, "VOLUME_TRIALS", {})


@given(LOSSES, WEIGHTS)
def test_what_dominates_another_trial_is_never_worse(losses: Array, weights: Array) -> None:
    found = scalarized(losses, weights, DRAWN)
    for index, one in enumerate(losses):
        dominated = (losses >= one).all(axis=1)
        assert (found[dominated] >= found[index] - 1e-12).all()


@given(LOSSES, WEIGHTS, st.sampled_from([1e-250, 1e-9, 1.0, 4.0, 1e200]))
def test_the_units_of_the_objectives_make_no_difference(losses: Array, weights: Array, unit: float) -> None:
    units = np.array([unit, 1.0, 1 / unit])
    assert scalarized(losses * units, weights, DRAWN) == pytest.approx(scalarized(losses, weights, DRAWN))


def test_a_trial_that_is_far_away_does_not_make_the_others_equal() -> None:
    losses = np.array([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [3.0, 0.0], [1e9, 0.5]])
    found = scalarized(losses, np.array([0.99, 0.01]), 0)
    assert found[0] < found[1] - 0.03 < found[2] - 0.06


def number(params: Params, name: str) -> float:
    value = params[name]
    assert isinstance(value, float)
    return value


def outcome(params: Params, signs: Sequence[int]) -> tuple[float, ...]:
    """Three losses, whose front is where `z` is 0.7: the triangle between (1, 0, 0), (0, 1, 0) and (0, 0, 1)."""
    x, y, z = (number(params, name) for name in "xyz")
    losses = np.array([x * y, x * (1 - y), 1 - x]) + 2 * (z - 0.7) ** 2
    return tuple((np.array(signs) * losses).tolist())


def searched(directions: tuple[Direction, ...], trials: int, *, constrained: bool = False) -> list[Observation]:
    """As from a service that is started again after half of the trials; two trials run at a time."""
    study = Study(Problem(SPACE, directions, constrained=constrained), SamplerSpec(sampler="gp"), 3)
    signs = [sign_of(one) for one in directions]
    view, known, running = StudyView(study), list[Observation](), list[Observation]()
    for index in range(trials):
        if index == trials // 2:
            view = StudyView(study, known)
        params = view.propose(running, index)
        running.append(Observation(index, params, "running"))
        if len(running) == 2:
            ended = running.pop(0)
            constraints = (number(ended.params, "z") - 0.5,) if constrained else None
            values = outcome(ended.params, signs)
            known.append(Observation(ended.number, ended.params, "completed", values, constraints=constraints))
            view.update([known[-1]])
    return known


@pytest.mark.usefixtures("always_scalarized")
def test_it_finds_the_front_and_all_of_it() -> None:
    found = searched(("minimize", "minimize", "minimize"), 40)
    later = [one.params for one in found[20:]]
    assert np.median([abs(number(one, "z") - 0.7) for one in later]) < 0.05
    assert min(number(one, "x") for one in later) < 0.2
    assert max(number(one, "x") for one in later) > 0.8


@pytest.mark.usefixtures("always_scalarized")
def test_maximizing_is_the_mirror_of_minimizing() -> None:
    mirrored = searched(("maximize", "minimize", "maximize"), 24)
    assert [one.params for one in mirrored] == [
        one.params for one in searched(("minimize", "minimize", "minimize"), 24)
    ]


@pytest.mark.usefixtures("always_scalarized")
def test_it_finds_what_is_feasible() -> None:
    later = searched(("minimize", "minimize", "minimize"), 40, constrained=True)[20:]
    places = [number(one.params, "z") for one in later]
    assert np.median([abs(place - 0.5) for place in places]) < 0.05
    assert sum(place <= 0.5 for place in places) > len(places) / 3


def test_a_proposal_for_six_objectives_needs_no_volumes() -> None:
    """Optuna's volumes would make this test take many minutes."""
    directions: tuple[Direction, ...] = ("minimize",) * 6
    view = StudyView(Study(Problem(SPACE, directions), SamplerSpec(sampler="gp"), 3))
    for index in range(12):
        params = view.propose([], index)
        values = tuple(math.sin(n + number(params, "x") * n) + number(params, "y") for n in range(6))
        view.update([Observation(index, params, "completed", values)])
