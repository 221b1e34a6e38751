"""Pareto fronts and hypervolumes, with Optuna as the oracle."""

from functools import cache

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import create_trial

from search.pareto import dominates, front_numbers, hypervolume, losses, pareto_front
from search.problem import Direction
from tests.conftest import examples

# Few distinct numbers, so that many trials tie.
SOME = st.sampled_from([-2.0, 0.0, 1e-9, 0.5, 1.0, 3.0]) | st.floats(-10, 10)


@st.composite
def measured(draw: st.DrawFn) -> tuple[list[list[float]], list[Direction]]:
    count = draw(st.integers(2, 5))
    directions: list[Direction] = draw(
        st.lists(st.sampled_from(["minimize", "maximize"]), min_size=count, max_size=count)
    )
    return draw(st.lists(st.lists(SOME, min_size=count, max_size=count), max_size=30)), directions


@examples(50)
@given(measured())
def test_the_front_is_the_one_that_optuna_finds(case: tuple[list[list[float]], list[Direction]]) -> None:
    values, directions = case
    study = optuna.create_study(directions=directions)
    study.add_trials([create_trial(values=some) for some in values])
    assert pareto_front(values, directions) == sorted(trial.number for trial in study.best_trials)


@examples(50)
@given(measured())
def test_the_front_has_the_values_that_no_others_dominate(case: tuple[list[list[float]], list[Direction]]) -> None:
    values, directions = case
    unbeaten = [
        place for place, one in enumerate(values) if not any(dominates(other, one, directions) for other in values)
    ]
    assert pareto_front(values, directions) == unbeaten


@examples(50)
@given(measured(), st.integers(0, 9))
def test_the_number_of_a_front_counts_the_longest_chain_that_dominates(
    case: tuple[list[list[float]], list[Direction]], lost: int
) -> None:
    """A loss that is not known, which is infinite, counts, too."""
    rows = losses(*case)
    rows[lost : lost + 1] = np.inf

    @cache
    def longest(place: int) -> int:
        above = [i for i, row in enumerate(rows) if (row <= rows[place]).all() and (row < rows[place]).any()]
        return max((longest(i) + 1 for i in above), default=0)

    assert front_numbers(rows).tolist() == [longest(place) for place in range(len(rows))]


def test_with_one_objective_the_front_has_all_best_values() -> None:
    assert pareto_front([[1.0], [0.5], [0.5]], ["minimize"]) == [1, 2]


def test_without_values_the_front_is_empty() -> None:
    assert pareto_front([], ["minimize", "maximize"]) == []


def test_the_hypervolume_is_the_area_between_the_front_and_the_reference() -> None:
    values = [[1.0, 0.5], [2.0, 0.75], [9.0, 1.0]]
    # Up to x = 4 and down to y = 0: 3 wide and 0.5 high, and above it 2 wide and 0.25 high. The third does not count.
    assert hypervolume(values, ["minimize", "maximize"], [4.0, 0.0]) == pytest.approx(3 * 0.5 + 2 * 0.25)
    assert hypervolume(values[2:], ["minimize", "maximize"], [4.0, 0.0]) == 0
