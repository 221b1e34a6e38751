"""The tables of real learning curves that searches are compared on: what a search sees, and what scores its winner."""

from itertools import product

import numpy as np
import pytest

from benchmarks.equal_time import Budget, regrets
from benchmarks.harness.curve_tables import FOLDER, TRAINED, CurveTable, curve_table, trained_task
from benchmarks.harness.problems import STEPS, TASKS, Task
from search.space.space import Space

LARGEST = 150_000


def small_table() -> CurveTable:
    """Two hyperparameters with two values each, three trainings and two steps."""
    curves = np.arange(24, dtype=np.float64).reshape(2, 2, 3, 2)
    return CurveTable({"rate": np.array([0.1, 1]), "width": np.array([8, 64])}, curves, curves[..., -1] + 100)


def lowest(task: Task) -> dict[str, int]:
    return {name: one["low"] for name, one in task.space.items()}


def test_a_search_sees_the_curve_of_its_training() -> None:
    assert small_table().task(1).curve({"rate": 1, "width": 0}) == [14.0, 15.0]


def test_a_winner_is_scored_by_the_test_values_of_the_other_trainings() -> None:
    task = small_table().task(1)
    assert task.expected({"rate": 1, "width": 0}, 15.0) == (113 + 117) / 2
    assert task.least == (101 + 105) / 2


def test_no_two_problems_have_the_same_name() -> None:
    assert not set(TRAINED) & set(TASKS)


@pytest.mark.parametrize("name", TRAINED)
def test_a_table_has_a_whole_grid_of_finite_curves(name: str) -> None:
    table = curve_table(name)
    trainings = tuple(map(len, table.grids.values()))
    assert len(trainings) >= 4
    assert table.curves.shape == (*trainings, 3, STEPS)
    assert table.tests.shape == (*trainings, 3)
    assert np.isfinite(table.curves).all()
    assert np.isfinite(table.tests).all()


@pytest.mark.parametrize("name", TRAINED)
def test_a_table_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.npz").stat().st_size < LARGEST


@pytest.mark.parametrize("name", TRAINED)
def test_a_problem_has_a_curve_and_a_score_for_each_point_of_its_space(name: str) -> None:
    task = trained_task(name, seed=0)
    Space.model_validate(task.space)
    corners = product(*((one["low"], one["high"]) for one in task.space.values()))
    for point in (dict(zip(task.space, corner, strict=True)) for corner in corners):
        curve = task.curve(point)
        assert len(curve) == task.steps
        assert task.expected(point, curve[-1]) >= task.least


def test_the_seed_of_a_search_chooses_the_training_that_it_sees() -> None:
    curves = [trained_task("image", seed) for seed in range(4)]
    seen = [task.curve(lowest(task)) for task in curves]
    assert seen[0] == seen[3]
    assert len({tuple(one) for one in seen}) == 3


def test_the_same_search_of_a_table_has_the_same_regrets() -> None:
    budget = Budget(workers=2, start=0, trainings=4)
    found = [regrets(trained_task("diabetes", 1), "random", 1, budget) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0][-1] is not None
    assert found[0][-1] >= 0
