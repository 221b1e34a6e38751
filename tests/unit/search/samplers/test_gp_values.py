"""`gp` tells good trials from each other also where values span orders of magnitude, or hardly differ."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.optuna.gp.model_values import log_offset
from search.space.space import Space
from search.study import Study, StudyView


def least_distance(direction: Direction, names: str, value: Callable[[float], float]) -> float:
    """From the best place, after 30 trials with these values by their distances from it."""
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in names})
    study = Study(Problem(space, (direction,)), SamplerSpec(sampler="gp"), 7)
    view, distances = StudyView(study), list[float]()
    for number in range(30):
        params = view.propose([], number)
        distances.append(math.dist([float(str(value)) for value in params.values()], [0.37] * len(names)))
        view.update([Observation(number, params, "completed", (value(distances[-1]),))])
    return min(distances)


@pytest.mark.slow
def test_it_tells_good_losses_from_each_other_beside_far_larger_ones() -> None:
    assert least_distance("minimize", "abc", lambda distance: 10 ** (20 * distance)) < 0.1


@pytest.mark.slow
def test_it_tells_values_from_each_other_that_are_far_from_0() -> None:
    """Optuna takes deviations below 1e-10 for none. Without the difference from the least value, it ends at 0.32."""
    assert least_distance("minimize", "abc", lambda distance: 1e9 + 1e-3 * distance) < 0.1


@pytest.mark.slow
def test_it_tells_good_trials_from_each_other_also_by_a_metric_such_as_r2() -> None:
    """It is 0.999 at the best place and -10^8 far from it. By the values themselves the search ends at 0.045."""
    assert least_distance("maximize", "ab", lambda distance: 1 - 10 ** (16 * distance - 3)) < 0.02


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1e-3, 1.0, 1e3, 1e6, 5.0], 0.0),
        ([1.0, 2.0, 3.0, 5.0, 4.0], None),
        ([-1.0, -0.99, 10.0, 1e3, 1e4, -0.9], 0.1 + 1.0),
        ([-1.0, -1.0, 10.0, 1e3, -1.0, -1.0], 11.0 + 1.0),
        ([-1.0, -1.0, -1.0, -1.0], None),
        ([0.0, 1e-3, math.inf, 1e3, 1e3], 1e-3),
        ([-1.0, 1e-3, 1e3, 1e308], None),
        ([-1.0, 1e9], None),
    ],
)
def test_logarithms_are_learned_of_losses_or_of_distances_that_differ_by_orders_of_magnitude(
    losses: list[float], expected: float | None
) -> None:
    assert log_offset(np.array(losses), drawn=10) == (None if expected is None else pytest.approx(expected))
