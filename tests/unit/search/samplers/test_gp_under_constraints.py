"""`gp` where the trials that meet a constraint are the expensive ones."""

import pytest

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView

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
