"""No configuration is proposed twice before all have been tried."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search.distinct_proposals import DistinctProposals
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.parameters import FloatParameter, Parameter
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conformance.sampler_problems import PROBLEMS
from tests.conftest import examples

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]
SAMPLERS: dict[str, dict[str, Any]] = {
    "tpe": {"n_startup_trials": 3},
    "random": {},
    "qmc": {},
    "cmaes": {"popsize": 4},
    "nsga2": {"population_size": 4},
}


def searched(study: Study, count: int) -> list[str]:
    view, found = StudyView(study), list[str]()
    for number in range(count):
        params = view.propose([], number)
        assert study.problem.space.mistakes_in(params) == []
        found.append(repr(sorted(params.items())))
        view.update([Observation(number, params, "completed", (float(len(repr(params))),))])
    return found


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("space", ["finite", "finite and forbidden", "finite numbers"])
def test_every_configuration_is_tried_once_before_any_is_tried_again(sampler: str, space: str) -> None:
    problem, spec = PROBLEMS[space], SamplerSpec(sampler=sampler, options=SAMPLERS[sampler])
    size = problem.space.size()
    assert size
    found = searched(Study(problem, spec, 7), size + 3)
    assert len(set(found[:size])) == size
    assert set(found[size:]) <= set(found[:size])


def test_steps_of_an_earlier_version_that_floats_do_not_distinguish_are_tried_again_after_all_of_them() -> None:
    space = Space.model_validate({"x": {"type": "float", "low": 1e17, "high": 1e17 + 160, "step": 1}})
    found = searched(Study(Problem(space, ("minimize",)), SamplerSpec(sampler="random"), 7), 14)
    assert len(set(found)) == len(set(found[:11])) == 11


@pytest.mark.parametrize("sampler", [one for one in SAMPLERS if one != "cmaes"])
def test_the_finite_part_of_an_infinite_space_is_not_repeated(sampler: str) -> None:
    """The best configuration by far is `linear`, of which there is one."""
    parameters = {
        "model": {"type": "categorical", "choices": ["linear", "net"]},
        "lr": {"type": "float", "low": 0, "high": 1, "when": {"model": "net"}},
    }
    spec = SamplerSpec(sampler=sampler, options=SAMPLERS[sampler])
    found = searched(Study(Problem(Space.model_validate(parameters), ("minimize",)), spec, 7), 30)
    assert len(set(found)) == 30
    assert repr([("model", "linear")]) in found


def test_among_many_choices_the_one_with_a_continuous_parameter_is_found() -> None:
    parameters = {
        "model": {"type": "categorical", "choices": [*range(19), "net"]},
        "lr": {"type": "float", "low": 0, "high": 1, "when": {"model": "net"}},
    }
    problem = Problem(Space.model_validate(parameters), ("minimize",))
    view = StudyView(Study(problem, SamplerSpec(sampler="random"), 7))
    view.update([Observation(number, {"model": number}, "completed", (0.0,)) for number in range(19)])
    rates = [float(str(view.propose([], number)["lr"])) for number in range(19, 119)]
    assert min(rates) < 0.1
    assert max(rates) > 0.9
    assert sum(rate < 1e-6 for rate in rates) == 0


@pytest.mark.parametrize("prunes", [True, False])
def test_a_model_does_not_propose_the_same_corner_of_a_continuous_space_again(prunes: bool) -> None:
    """The best is in a corner, and trials near it were stopped: what ends early, or is known, may be proposed again."""
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xy"})
    spec = SamplerSpec(sampler="gp", options={"n_startup_trials": 3})
    view, found = StudyView(Study(Problem(space, ("minimize",), prunes=prunes), spec, 7)), []
    for number in range(14):
        params = view.propose([], number)
        found.append(tuple(params.values()))
        loss = float(str(params["x"])) + float(str(params["y"]))
        if prunes and number % 3:
            view.update([Observation(number, params, "pruned", rungs=((1, loss),), last_step=1, last_value=loss)])
        else:
            view.update([Observation(number, params, "completed", (loss,), rungs=((1, loss),), last_step=1)])
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("sampler", ["nsga2", "nsga3"])
@pytest.mark.parametrize("directions", [("minimize",), ("minimize", "maximize")])
def test_a_child_that_is_a_copy_of_its_parent_is_moved_a_little(sampler: str, directions: tuple[Any, ...]) -> None:
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xyz"})
    problem = Problem(space, directions)

    def searched(*, repeats: bool) -> list[tuple[float, ...]]:
        spec = SamplerSpec(sampler=sampler, options={"population_size": 6, "mutation_prob": 0}, repeats=repeats)
        view, found = StudyView(Study(problem, spec, 7)), list[tuple[float, ...]]()
        for number in range(60):
            params = view.propose([], number)
            found.append(tuple(float(str(value)) for value in params.values()))
            view.update([Observation(number, params, "completed", found[-1][: len(directions)])])
        return found

    copied, moved = searched(repeats=True), searched(repeats=False)
    first = next(number for number, one in enumerate(copied) if one in copied[:number])
    assert moved[:first] == copied[:first]
    assert 0 < sum(abs(ours - parent) for ours, parent in zip(moved[first], copied[first], strict=True)) < 0.5
    assert len(set(copied)) < 50
    assert len(set(moved)) == 60


def test_repetitions_are_there_for_the_asking() -> None:
    spec = SamplerSpec(options={"n_startup_trials": 3}, repeats=True)
    assert len(set(searched(Study(PROBLEMS["finite numbers"], spec, 7), 36))) < 36


def test_another_proposal_differs_in_as_little_as_possible() -> None:
    space = Space.model_validate({name: {"type": "int", "low": 0, "high": 9} for name in "abc"})
    study = Study(Problem(space, ("minimize",)), SamplerSpec(sampler="random"), 7)
    first = propose(study, [], 5)
    running = Observation(0, first, "running")
    other = propose(study, [running], 5)
    assert sum(first[name] != other[name] for name in first) == 1
    assert propose(study, [Observation(5, first, "running")], 5) == first
    assert propose(study, [Observation(-1, first, "completed", (0.5,))], 5) == first


def test_what_a_narrowed_space_no_longer_has_does_not_count_as_tried() -> None:
    parameters = {
        "o": {"type": "categorical", "choices": ["a", "b"]},
        "m": {"type": "int", "low": 0, "high": 1, "when": {"o": "a"}},
    }
    space = Space.model_validate(parameters)
    before: list[Params] = [{"o": "a", "m": 0}, {"o": "a", "m": 2}, {"o": "b", "m": 0}, {"o": "b", "m": 1}]
    distinct = DistinctProposals(space, 7)
    for number, params in enumerate(before):
        distinct.learn(Observation(number, params, "completed", (0.0,)))
    found = []
    for number in (4, 5):
        found.append(distinct.instead_of({"o": "a", "m": 0}, number))
        distinct.learn(Observation(number, found[-1], "running"))
    assert sorted(map(str, found)) == ["{'o': 'a', 'm': 1}", "{'o': 'b'}"]


@pytest.mark.parametrize("log", [True, False])
def test_a_whole_number_that_would_be_repeated_is_moved_a_little(log: bool) -> None:
    space = Space.model_validate({"n": {"type": "int", "low": 1, "high": 4096, "log": log}})
    distinct = DistinctProposals(space, 7)
    distinct.learn(Observation(0, {"n": 8}, "completed", (0.0,)))
    found = [int(str(distinct.instead_of({"n": 8}, number)["n"])) for number in range(1, 200)]
    assert max(found) < (8 * 4096**0.5 if log else 2048)
    assert 8 not in found


@given(data=st.data(), finite=st.booleans())
@examples(60)
def test_a_space_of_any_shape_is_searched_without_repetition(data: st.DataObject, draws: Any, finite: bool) -> None:
    space = data.draw(draws.spaces(finite=finite))
    assume(not any(has_few_floats(one) for one in space.root.values()))
    count = min(space.configurations.size, 12)
    assert len(set(searched(Study(Problem(space, ("minimize",)), SamplerSpec(), 7), count))) == count


def has_few_floats(parameter: Parameter) -> bool:
    """Whether a continuous parameter has so few different floats that draws repeat one."""
    if not isinstance(parameter, FloatParameter) or parameter.step is not None:
        return False
    width = parameter.high - parameter.low
    return 0 < width < 1e6 * math.ulp(max(abs(parameter.low), abs(parameter.high)))


@pytest.mark.parametrize("high", [0.3, 0.5])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_float_that_differs_by_rounding_is_the_same_configuration(sampler: str, high: float) -> None:
    space = Space.model_validate({"x": {"type": "float", "low": 0.1, "high": high, "step": 0.1}})
    study = Study(Problem(space, ("minimize",)), SamplerSpec(sampler=sampler, options=SAMPLERS[sampler]), 7)
    view = StudyView(study, [Observation(0, {"x": 0.1 + 0.2}, "completed", (1.0,))])
    others = {0.1, 0.2, 0.4, 0.5} if high == 0.5 else {0.1, 0.2}
    numbers = range(1, len(others) + 1)
    for number in numbers:
        view.update([Observation(number, view.propose([], number), "running")])
    assert {view.propose([], number)["x"] for number in numbers} == others
