"""What a trial has shown, as points of its learning curve."""

import math
from typing import Any

import pytest

from search.problem import Observation, Problem, Status
from search.samplers.learning_curve import END, LearningCurve, learning_curve_of
from search.space.space import Space

PROBLEM = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",), prunes=True)
MAXIMIZED = Problem(PROBLEM.space, ("maximize",), prunes=True)
RUNGS = ((1, 5.0), (3, 4.0), (9, 2.0))


def curve(status: Status, problem: Problem = PROBLEM, **facts: Any) -> LearningCurve | None:
    return learning_curve_of(problem, Observation(0, {"x": 0.5}, status, **facts))


@pytest.mark.parametrize("status", ["pruned", "stopped"])
def test_a_trial_that_ended_early_has_shown_what_it_was_compared_by(status: Status) -> None:
    assert curve(status, rungs=RUNGS, last_step=11, last_value=1.5) == LearningCurve(dict(RUNGS), 9)


def test_a_running_trial_has_shown_the_same_and_nothing_that_may_still_change() -> None:
    assert curve("running", rungs=RUNGS, last_step=11, last_value=1.5) == LearningCurve(dict(RUNGS), 9, is_running=True)
    assert curve("running", last_step=11, last_value=1.5) is None


def test_a_completed_trial_has_its_result_at_the_end() -> None:
    found = curve("completed", values=(1.5,), rungs=RUNGS, last_step=9)
    assert found == LearningCurve({1: 5.0, 3: 4.0, END: 1.5}, 9)


def test_less_is_better_whatever_the_direction() -> None:
    assert curve("completed", MAXIMIZED, values=(0.9,), last_step=3) == LearningCurve({END: -0.9}, 3)
    assert curve("stopped", MAXIMIZED, last_step=3, last_value=0.9) == LearningCurve({3: -0.9}, 3)


def test_a_trial_that_diverged_ends_as_one_of_the_worst() -> None:
    assert curve("diverged", rungs=RUNGS, last_step=9) == LearningCurve({END: math.inf})


@pytest.mark.parametrize("status", ["failed", "stopped", "pruned", "running"])
def test_a_trial_without_a_value_has_shown_nothing(status: Status) -> None:
    assert curve(status) is None


def test_of_many_steps_the_first_of_each_doubling_counts() -> None:
    found = curve("pruned", rungs=tuple((step, 100.0 - step) for step in range(1, 21)))
    assert found is not None
    assert list(found.losses) == [1, 2, 4, 8, 16]


def test_what_is_not_a_number_counts_as_the_worst() -> None:
    found = curve("pruned", rungs=((1, math.nan),))
    assert found is not None
    assert found.losses == {1: math.inf}
