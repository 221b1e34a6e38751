"""`auto` chooses a sampler for the problem."""

from typing import Any

import pytest

from search.problem import Problem
from search.samplers import SamplerSpec
from search.space.space import Space

ONE_OF_TWO = {"type": "categorical", "choices": ["x", "y"]}
UNDER_X = {"type": "float", "low": 0, "high": 1, "when": {"c": "x"}}
FLAT = {name: {"type": "float", "low": 0, "high": 1} for name in "abcdef"}


@pytest.mark.parametrize(
    ("space", "facts", "chosen"),
    [
        ({"c": ONE_OF_TWO}, {"max_trials": 2}, "brute_force"),
        ({"c": ONE_OF_TWO}, {"max_trials": 1}, "gp"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 50}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 4}, "gp"),
        (FLAT, {"max_trials": 100, "parallelism": 4, "prunes": True}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 50}, "tpe"),
        (FLAT, {"max_trials": 20, "prunes": True, "population": True}, "qmc"),
        (
            {"c": ONE_OF_TWO, "p": UNDER_X},
            {"max_trials": 20, "population": True, "directions": ("minimize",) * 2},
            "qmc",
        ),
        (FLAT, {"max_trials": 1000}, "tpe"),
        (FLAT, {"max_trials": 5000}, "cmaes"),
        (FLAT, {"max_trials": 5000, "constrained": True}, "tpe"),
        (FLAT, {}, "cmaes"),
        (FLAT, {"max_trials": 100, "directions": ("minimize",) * 2}, "tpe"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 2}, "nsga2"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 4}, "nsga3"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 5000, "directions": ("minimize",) * 4}, "tpe"),
    ],
)
def test_auto_chooses_for_the_problem_and_gives_the_reason(
    space: dict[str, Any], facts: dict[str, Any], chosen: str
) -> None:
    asked = Problem(Space.model_validate(space), **{"directions": ("minimize",), **facts})
    choice = SamplerSpec(sampler="auto").chosen_for(asked)
    assert choice.name == chosen
    assert choice.reason
    assert SamplerSpec(sampler=chosen).mistakes_with(asked) == []
