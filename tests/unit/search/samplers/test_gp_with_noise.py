"""`gp` where measurements are noisy: a lucky one must not mislead it."""

import numpy as np
import pytest

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView, propose

LINE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
BEST, LUCKY, COUNT = 0.3, 9, 24
LIMIT = 0.9
"""Beyond it a constraint is violated."""


def loss(number: int, x: float) -> float:
    return (x - BEST) ** 2 + (-0.6 if number == LUCKY else 0.1 * (-1) ** number)


def completed(number: int, direction: Direction, *, constrained: bool) -> Observation:
    x = number * 0.618 % 1
    value = loss(number, x) if direction == "minimize" else -loss(number, x)
    return Observation(number, {"x": x}, "completed", (value,), constraints=(x - LIMIT,) if constrained else None)


def proposed(direction: Direction = "minimize", *, constrained: bool = False, running: int = 0) -> list[float]:
    problem = Problem(LINE, (direction,), constrained=constrained)
    study = Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    history = [completed(number, direction, constrained=constrained) for number in range(COUNT)]
    history += [Observation(COUNT + one, {"x": one / 10}, "running") for one in range(running)]
    return [float(str(propose(study, history, number)["x"])) for number in range(COUNT + running, COUNT + running + 3)]


@pytest.mark.slow
@pytest.mark.parametrize("running", [0, 2])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_one_lucky_trial_does_not_drive_it_away_from_the_best_place(
    direction: Direction, running: int, *, constrained: bool
) -> None:
    """The value of that trial has improvement expected only where little is known: at 0, and beside the limit."""
    found = proposed(direction, constrained=constrained, running=running)
    assert max(abs(x - BEST) for x in found) < 0.2


@pytest.mark.slow
def test_it_finds_the_bottom_of_a_bowl_by_noisy_values() -> None:
    """Counted from the best observed value, the mean loss of the second half is 0.12: it draws far from the bottom."""
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "ab"})
    means = []
    for seed in range(3):
        chance = np.random.default_rng(seed)
        view = StudyView(Study(Problem(space, ("minimize",)), SamplerSpec(sampler="gp"), seed))
        losses = []
        for number in range(30):
            params = view.propose([], number)
            losses.append(sum((float(str(value)) - 0.6) ** 2 for value in params.values()))
            view.update([Observation(number, params, "completed", (losses[-1] + 0.1 * chance.normal(),))])
        means.append(float(np.mean(losses[15:])))
    assert np.mean(means) < 0.08
