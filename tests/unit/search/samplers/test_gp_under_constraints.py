"""`gp` where constraints tell it nothing, or only the expensive trials meet them."""

import math

import pytest

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView, propose

LINE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
FEASIBLE_FROM = 0.85


def trained(number: int, x: float) -> Observation:
    """The cost grows steeply where the accuracy comes near the one that is wanted."""
    cost = 1 + 0.1 * x + 400 * max(0.0, x - 0.7)
    return Observation(number, {"x": x}, "completed", (cost,), constraints=(FEASIBLE_FROM - x,))


@pytest.mark.slow
def test_feasible_trials_that_cost_far_more_than_the_others_do_not_count_as_diverged() -> None:
    problem = Problem(LINE, ("minimize",), constrained=True)
    study = Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    view = StudyView(study, [trained(n, n / 8) for n in range(9)])
    proposed = []
    for number in range(9, 15):
        x = float(str(view.propose([], number)["x"]))
        proposed.append(x)
        view.update([trained(number, x)])
    assert min(x for x in proposed if x >= FEASIBLE_FROM) < FEASIBLE_FROM + 0.01


@pytest.mark.slow
def test_proposals_are_drawn_while_all_trials_violate_a_constraint_alike() -> None:
    """A model that has only seen one violation proposes nothing but corners."""
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "abc"})
    study = Study(Problem(space, ("minimize",), constrained=True), SamplerSpec(sampler="gp"), 7)
    history = [
        Observation(number, propose(study, [], number), "completed", (number / 10,), constraints=(1.0,))
        for number in range(12)
    ]
    proposals = [propose(study, history, number) for number in range(12, 18)]
    at_corners = [all(abs(float(str(value)) - 0.5) > 0.4 for value in one.values()) for one in proposals]
    assert sum(at_corners) <= 2


@pytest.mark.slow
def test_it_finds_the_limit_of_a_constraint_whose_metric_spans_orders_of_magnitude() -> None:
    """About one in eight configurations is feasible. With the violations as they are, no trial was."""
    space = Space.model_validate(
        {
            "width": {"type": "int", "low": 8, "high": 4096, "log": True},
            "depth": {"type": "int", "low": 1, "high": 16},
            "rate": {"type": "float", "low": 1e-5, "high": 1, "log": True},
        }
    )
    view = StudyView(
        Study(Problem(space, ("minimize",), constrained=True, max_trials=25), SamplerSpec(sampler="gp"), 7)
    )
    feasible = []
    for number in range(25):
        params = view.propose([], number)
        width, depth, rate = (float(str(params[name])) for name in ("width", "depth", "rate"))
        size = width**2 * depth
        loss = 1 / math.log2(size) + 0.05 * (math.log10(rate) + 3) ** 2
        feasible.append(size <= 2000)
        view.update([Observation(number, params, "completed", (loss,), constraints=(size - 2000,))])
    assert sum(feasible) >= 8
