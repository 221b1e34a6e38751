"""The Gaussian process learns where trials diverge, and that their losses do not count."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.gp.losses import bounded, diverged
from search.space.space import Params, Space
from search.study import Study, StudyView, propose

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


LINE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
CLIFF = 0.6
"""The larger x, the better; beyond it trials diverge."""


def trained(number: int, params: Params, direction: Direction, diverged: float | None) -> Observation:
    """`diverged` is the loss of trials that do. None: they report no number."""
    x = float(str(params["x"]))
    loss = 1 - x if x <= CLIFF else diverged
    rungs = tuple((step, math.inf if loss is None else loss + 1 / step) for step in (1, 3))
    if loss is None:
        return Observation(number, params, "diverged", rungs=rungs)
    value = loss if direction == "minimize" else -loss
    return Observation(number, params, "completed", (value,), last_step=9, last_value=value, rungs=rungs)


@pytest.mark.slow
@pytest.mark.parametrize("prunes", [False, True], ids=["whole", "early stopping"])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("diverged", [None, 9.0, 1e30], ids=["no number", "large", "huge"])
def test_it_learns_where_trials_diverge_and_approaches_the_best_beside_that(
    diverged: float | None, direction: Direction, *, prunes: bool
) -> None:
    problem = Problem(LINE, (direction,), prunes=prunes)
    study = Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    view = StudyView(study, [trained(n, {"x": n / 8}, direction, diverged) for n in range(9)])
    proposed = []
    for number in range(9, 17):
        params = view.propose([], number)
        view.update([trained(number, params, direction, diverged)])
        proposed.append(float(str(params["x"])))
    assert sum(x > CLIFF + 0.05 for x in proposed) <= 1
    assert max(x for x in proposed if x <= CLIFF) > CLIFF - 0.03


def beside_a_cliff(number: int, x: float, objectives: int) -> Observation:
    """Beyond it trials diverge. With one objective, of which more is better, there is a constraint: x >= 0.3."""
    if x > CLIFF:
        return Observation(number, {"x": x}, "diverged")
    if objectives == 1:
        return Observation(number, {"x": x}, "completed", (x,), constraints=(0.3 - x,))
    return Observation(number, {"x": x}, "completed", (x, (x - 0.2) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("running", [0, 2])
@pytest.mark.parametrize("objectives", [1, 2], ids=["constrained", "two objectives"])
def test_it_learns_where_trials_diverge_under_constraints_and_with_several_objectives(
    objectives: int, running: int
) -> None:
    directions: Sequence[Direction] = ("maximize", "minimize")
    problem = Problem(LINE, tuple(directions[:objectives]), constrained=objectives == 1)
    study = Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    view = StudyView(study, [beside_a_cliff(n, n / 8, objectives) for n in range(9)])
    proposed = []
    for number in range(9, 17):
        x = float(str(view.propose([], number)["x"]))
        proposed.append(x)
        view.update([Observation(number, {"x": x}, "running")])
        if number - running > 8:
            view.update([beside_a_cliff(number - running, proposed[-1 - running], objectives)])
    assert sum(x > CLIFF + 0.05 for x in proposed) <= 1
    assert objectives > 1 or max(x for x in proposed if x <= CLIFF) > CLIFF - 0.03


@pytest.mark.slow
@pytest.mark.parametrize(
    "facts", [{}, {"prunes": True}, {"constrained": True}, {"directions": ("minimize", "maximize")}], ids=str
)
def test_it_proposes_while_all_trials_diverge(facts: dict[str, Any]) -> None:
    study = Study(Problem(**{"space": LINE, "directions": ("minimize",), **facts}), SamplerSpec(sampler="gp"), 7)
    history = [Observation(number, {"x": number / 12}, "diverged") for number in range(12)]
    found = {float(str(propose(study, history, number)["x"])) for number in range(12, 16)}
    assert len(found) == 4
    assert all(0 <= x <= 1 for x in found)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.1, 0.2, 0.3, 3.0], [False, False, False, True]),
        ([0.1, 0.2, 0.3, 0.5], [False] * 4),
        ([0.1, 0.2, 0.3, math.inf], [False, False, False, True]),
        ([0.2, 0.2, 0.2, 9.0], [False] * 4),
        ([math.inf, math.inf], [True, True]),
        ([-1e308, 0.0, 1e308, 1.7e308], [False] * 4),
        ([-1.0, -0.9, -0.9, -0.1], [False, False, False, True]),
    ],
)
def test_a_loss_far_from_all_others_counts_as_diverged(losses: list[float], expected: list[bool]) -> None:
    assert diverged(np.array(losses), far=3).tolist() == expected


@pytest.mark.parametrize("factor", [1.0, 1e307, 1.7e308])
def test_losses_near_the_largest_float_are_bounded_as_others_are(factor: float) -> None:
    for losses, expected in [([-1.0, -0.9, -0.8, 1.0], [-1.0, -0.9, -0.8, 0.65]), ([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])]:
        found = bounded(np.array(losses) * factor, far=10)
        assert found / np.abs(found).max() == pytest.approx(expected)


def test_losses_of_the_first_trials_have_not_diverged_because_the_others_are_much_better() -> None:
    losses = np.array([*range(1, 11), *[0.01] * 90], dtype=float)
    assert not diverged(losses, far=3).any()
