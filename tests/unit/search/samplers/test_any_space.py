"""Every sampler proposes configurations of any space, and the same ones after a restart."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search.problem import Observation, Problem
from search.samplers import SAMPLERS, SamplerSpec
from search.study import Study, StudyView, propose
from tests.conformance.sampler_problems import OPTIONS
from tests.conftest import examples
from tests.unit.search.conftest import outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]
MORE = [
    SamplerSpec(),
    SamplerSpec(sampler="cmaes", options={"popsize": 4, "with_margin": True, "n_startup_trials": 3}),
    SamplerSpec(sampler="cmaes", options={"popsize": 4, "use_separable_cma": True, "consider_pruned_trials": True}),
    SamplerSpec(sampler="nsga2", options={"population_size": 4, "crossover": "undx", "mutation": "polynomial"}),
    SamplerSpec(sampler="nsga3", options={"population_size": 4, "crossover": "sbx"}),
]
SLOW = {"gp"}
EVERYTHING = [
    SamplerSpec(sampler=name, options=options)
    for name in sorted(SAMPLERS.keys() - SLOW)
    for options in OPTIONS.get(name, [{}])
] + MORE


@given(data=st.data(), sampler=st.sampled_from(EVERYTHING))
@examples(150)
def test_a_proposal_belongs_to_any_space_and_is_the_same_after_a_restart(
    data: st.DataObject, draws: Any, sampler: SamplerSpec
) -> None:
    space = data.draw(draws.spaces(finite=True if sampler.sampler in ("brute_force", "grid") else None))
    space = data.draw(draws.forbidden(space))
    study = Study(Problem(space, ("minimize",), max_trials=2000), sampler, 7)
    assume(sampler.mistakes_with(study.problem) == [])
    view, known = StudyView(study), dict[int, Observation]()
    for _ in range(data.draw(st.integers(1, 3))):
        changes = data.draw(draws.histories(space, max_size=12, numbers=20))
        known |= {observation.number: observation for observation in changes}
        number = data.draw(st.integers(0, 22))
        proposed = outcome(view.propose, changes, number)
        assert isinstance(proposed, str) or space.mistakes_in(proposed) == []
        assert outcome(propose, study, data.draw(st.permutations(list(known.values()))), number) == proposed
