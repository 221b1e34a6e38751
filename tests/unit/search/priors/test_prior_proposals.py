"""Proposals with priors: some from the priors, some from around the best trial, the others from the sampler."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.priors.evidence import shares
from search.priors.proposer import PriorProposer
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conftest import examples

pytestmark = pytest.mark.slow

CONFIDENCES = ["low", "medium", "high"]
RANDOM = SamplerSpec(sampler="random")
BELIEVED = {
    "x": {"type": "float", "low": 0, "high": 1, "prior": {"value": 0.2, "confidence": "high"}},
    "lr": {"type": "float", "low": 1e-4, "high": 1, "log": True, "prior": {"value": 1e-3}},
}


def problem_of(parameters: dict[str, Any], **facts: Any) -> Problem:
    return Problem(Space.model_validate(parameters), ("minimize",), **facts)


def with_priors(data: st.DataObject, space: Space, values: Params) -> Space:
    """The space with priors at the values of some of its parameters."""
    written = space.model_dump(mode="json")
    for name in data.draw(st.lists(st.sampled_from(sorted(values)), min_size=1, unique=True)):
        written[name]["prior"] = {"value": values[name], "confidence": data.draw(st.sampled_from(CONFIDENCES))}
    return Space.model_validate(written).without(space.forbidden)


@given(data=st.data(), sampler=st.sampled_from([SamplerSpec(options={"n_startup_trials": 2}), RANDOM]))
@examples(60)
def test_a_proposal_belongs_to_any_space_and_is_the_same_for_the_same_history(
    data: st.DataObject, draws: Any, sampler: SamplerSpec
) -> None:
    space = data.draw(draws.forbidden(data.draw(draws.spaces())))
    space = with_priors(data, space, data.draw(draws.configurations(space)))
    history = data.draw(draws.histories(space, max_size=12))
    study = Study(Problem(space, ("minimize",)), sampler, data.draw(st.integers(0, 2**32 - 1)))
    view, other = StudyView(study, history), StudyView(study, history[::-1])
    for number in (3, 41):
        params = view.propose([], number)
        assert space.mistakes_in(params) == []
        assert (other.propose([], number), other.source(number)) == (params, view.source(number))
        own = Observation(number, params, "running")
        assert propose(study, [*(one for one in history if one.number != number), own], number) == propose(
            study, [one for one in history if one.number != number], number
        )


@given(data=st.data())
@examples(30)
def test_a_finite_space_is_searched_without_repetition(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.spaces(finite=True))
    space = with_priors(data, space, data.draw(draws.configurations(space)))
    view = StudyView(Study(Problem(space, ("minimize",)), SamplerSpec(), 7))
    found = []
    for number in range(min(space.size() or 0, 10)):
        found.append(view.propose([], number))
        view.update([Observation(number, found[-1], "completed", (float(number % 3),))])
    assert len({repr(one) for one in found}) == len(found)


def test_the_values_of_the_priors_are_tried_first_and_once() -> None:
    study = Study(problem_of(BELIEVED), SamplerSpec(), 7)
    mode: Params = {"x": 0.2, "lr": 1e-3}
    view = StudyView(study)
    assert (view.propose([], 0), view.source(0)) == (mode, "prior")
    assert view.propose([Observation(0, mode, "running")], 1) != mode
    enqueued = [Observation(0, {"x": 0.9, "lr": 0.5}, "running")]
    assert propose(study, enqueued, 1) == mode
    assert propose(study, [*enqueued, Observation(1, mode, "failed")], 2) != mode


def test_parents_without_a_prior_are_chosen_so_that_most_priors_exist() -> None:
    unit = {"type": "float", "low": 0, "high": 1, "prior": {"value": 0.9}}
    parameters = {
        "first": {**unit, "when": {"model": "a"}},
        "model": {"type": "categorical", "choices": list("abcdefghij")},
        "depth": {"type": "int", "low": 1, "high": 99, "when": {"model": ["b", "c"]}},
        "second": {**unit, "when": {"depth": {"min": 98}}},
        "third": {**unit, "when": {"depth": {"max": 98}, "model": "c"}},
    }
    firsts = [propose(Study(problem_of(parameters), SamplerSpec(), seed), [], 0) for seed in range(10)]
    assert firsts == [{"model": "c", "depth": 98, "second": 0.9, "third": 0.9}] * 10


def test_a_parent_keeps_the_value_of_its_own_prior() -> None:
    parameters = {
        "model": {"type": "categorical", "choices": ["a", "b"], "prior": {"value": "a"}},
        **{name: {"type": "int", "low": 0, "high": 9, "when": {"model": "b"}, "prior": {"value": 3}} for name in "xy"},
    }
    assert propose(Study(problem_of(parameters), SamplerSpec(), 7), [], 0) == {"model": "a"}


def test_random_learns_nothing_from_an_earlier_experiment() -> None:
    """Neither where its best trials are, nor that it has tried the values of the priors."""
    study = Study(problem_of(BELIEVED), SamplerSpec(sampler="random", warm_start=("earlier",)), 7)
    tried = [Observation(-1, {"x": 0.2, "lr": 1e-3}, "completed", (9.0,), experiment="earlier")]
    tried += [Observation(-n, {"x": 0.9, "lr": n / 50}, "completed", (-1.0,), experiment="earlier") for n in (2, 3, 4)]
    warm, cold = StudyView(study, tried), StudyView(study)
    for number in range(12):
        params = warm.propose([], number)
        assert (params, warm.source(number)) == (cold.propose([], number), cold.source(number))
        for view in (warm, cold):
            view.update([Observation(number, params, "completed", (float(number % 5),))])


def test_the_values_of_priors_that_are_forbidden_together_are_not_tried() -> None:
    space = Space.model_validate(BELIEVED).without([{"x": (0.2,), "lr": (1e-3,)}])
    params = propose(Study(Problem(space, ("minimize",)), SamplerSpec(), 7), [], 0)
    assert space.mistakes_in(params) == []


def test_a_parameter_without_a_prior_and_one_under_a_condition_are_drawn() -> None:
    parameters = {
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"], "prior": {"value": "sgd"}},
        "momentum": {"type": "float", "low": 0, "high": 1, "when": {"optimizer": "sgd"}, "prior": {"value": 0.9}},
        "decay": {"type": "float", "low": 0, "high": 1},
    }
    firsts = [propose(Study(problem_of(parameters), RANDOM, seed), [], 0) for seed in range(20)]
    assert {(one["optimizer"], one["momentum"]) for one in firsts} == {("sgd", 0.9)}
    assert len({one["decay"] for one in firsts}) == len(firsts)


def test_a_prior_on_the_widest_logarithmic_range_is_followed() -> None:
    extreme = {"type": "float", "low": 1e-300, "high": 1e300, "log": True}
    drawn = drawn_from_priors(extreme, "high", 1.0)
    assert len({value for value in drawn if 1e-200 < value < 1e200}) > len(drawn) / 2


def drawn_from_priors(parameter: dict[str, Any], confidence: str, value: Any) -> list[Any]:
    """Proposals from the prior for many trials, none of which has ended."""
    priors = {"p": {**parameter, "prior": {"value": value, "confidence": confidence}}}
    view = StudyView(Study(problem_of(priors), SamplerSpec(sampler="random", repeats=True), 7))
    view.update([Observation(0, {"p": value}, "running")])
    return [view.propose([], number)["p"] for number in range(1, 300) if view.source(number) == "prior"]


@pytest.mark.parametrize(
    ("parameter", "value", "near"),
    [
        ({"type": "float", "low": -1, "high": 1}, 0.5, lambda one: abs(one - 0.5) <= 0.25),
        ({"type": "float", "low": 1e-4, "high": 1, "log": True}, 1e-3, lambda one: 10**-3.5 <= one <= 10**-2.5),
        ({"type": "int", "low": 0, "high": 80, "step": 10}, 20, lambda one: 10 <= one <= 30),
        ({"type": "int", "low": 1, "high": 256, "log": True}, 4, lambda one: 2 <= one <= 8),
        ({"type": "categorical", "choices": ["a", "b", "c", "d"]}, "b", lambda one: one == "b"),
    ],
)
def test_draws_are_nearer_to_the_value_the_more_confident_the_user_is(
    parameter: dict[str, Any], value: Any, near: Callable[[Any], bool]
) -> None:
    found = [drawn_from_priors(parameter, confidence, value) for confidence in CONFIDENCES]
    low, medium, high = (sum(map(near, ones)) / len(ones) for ones in found)
    assert low + 0.05 < medium < high - 0.05
    assert all(len(set(ones)) > 3 for ones in found)


def test_a_choice_has_its_own_probability_above_a_uniform_one() -> None:
    counts = Counter(drawn_from_priors({"type": "categorical", "choices": ["a", "b"]}, "medium", "b"))
    assert 0.65 < counts["b"] / counts.total() < 0.85


def proposer_after(objective: Callable[[Params], float], count: int, **facts: Any) -> PriorProposer:
    """One that has seen the values of random configurations."""
    study = Study(problem_of(BELIEVED, **facts), SamplerSpec(), 7)
    proposer = PriorProposer(RANDOM.chosen_for(study.problem).sampler.proposer(study.problem, 7), study.problem, 7)
    draws = Study(study.problem, RANDOM, 11)
    for number in range(count):
        params = draws.chosen_sampler.sampler.proposer(study.problem, 11).propose(number)
        proposer.learn(Observation(number, params, "completed", (objective(params),)))
    return proposer


def distance(params: Params) -> float:
    assert isinstance(params["x"], float)
    return abs(params["x"] - 0.2)


def test_priors_are_used_while_trials_near_them_are_better_and_no_more_when_they_are_worse() -> None:
    right, wrong = proposer_after(distance, 12), proposer_after(lambda params: -distance(params), 12)
    assert right.shares(12).prior > 0.5 * (right.shares(12).prior + right.shares(12).incumbent)
    assert wrong.shares(12).prior < 0.1 * right.shares(12).prior
    assert wrong.shares(12).incumbent > 0


def test_the_sampler_gets_more_of_the_proposals_the_more_trials_it_can_learn_from() -> None:
    others = [1 - one.prior - one.incumbent for one in (proposer_after(distance, n).shares(n) for n in (0, 10, 40))]
    assert others == sorted(others)
    assert others[0] < 0.6
    assert others[-1] > 0.85


@given(near=st.lists(st.floats(0, 1), min_size=1, max_size=30), data=st.data())
def test_shares_are_probabilities(near: list[float], data: st.DataObject) -> None:
    standing = data.draw(st.lists(st.floats(0, 1), min_size=len(near), max_size=len(near)))
    found = shares(np.array(near), np.array(standing))
    assert 0 <= found.prior <= found.prior + found.incumbent <= 1


def test_one_near_trial_that_beats_all_others_leaves_no_negative_share() -> None:
    found = shares(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, 1 / 3, 2 / 3, 1.0]))
    assert found.prior == pytest.approx(0.5 * 10 / 14)
    assert found.incumbent == 0


def test_a_proposal_beside_the_best_trial_changes_it_a_little() -> None:
    proposer = proposer_after(lambda params: -distance(params), 12)
    best: Params = {"x": 0.99, "lr": 0.01}
    proposer.learn(Observation(12, {"x": 0.2, "lr": 1e-3}, "completed", (0.0,)))  # what would be tried first
    proposer.learn(Observation(13, best, "completed", (-1.0,)))
    numbers = [number for number in range(14, 200) if proposer.source(number) == "incumbent"]
    found = [proposer.propose(number) for number in numbers]
    assert found
    assert all(one != best and abs(distance(one) - distance(best)) < 0.4 for one in found)


def test_an_infeasible_trial_is_not_the_best_one() -> None:
    proposer = proposer_after(distance, 3, constrained=True)
    for number, (x, violation) in enumerate([(0.95, 0.0), (0.2, 5.0), (0.21, 5.0), (0.22, 6.0)]):
        params: Params = {"x": x, "lr": 1e-3 if x == 0.2 else 0.5}
        proposer.learn(Observation(number, params, "completed", (distance(params),), constraints=(violation,)))
    found = [proposer.propose(number) for number in range(9, 300) if proposer.source(number) == "incumbent"]
    assert len(found) > 5
    assert min(map(distance, found)) > 0.3


@pytest.mark.parametrize(
    ("sampler", "facts", "reason"),
    [
        ("qmc", {}, "qmc proposes from a list of its own"),
        ("tpe", {"population": True}, "all trials of a population start before any of them ends"),
        ("tpe", {"directions": ("minimize", "minimize")}, "priors are used with one objective only"),
    ],
)
def test_where_priors_have_no_effect_a_warning_says_so(sampler: str, facts: dict[str, Any], reason: str) -> None:
    spec = SamplerSpec(sampler=sampler)
    problem = Problem(**{"space": Space.model_validate(BELIEVED), "directions": ("minimize",), **facts})
    plain = Problem(
        **{
            "space": Space.model_validate({n: {**p, "prior": None} for n, p in BELIEVED.items()}),
            "directions": problem.directions,
            **facts,
        }
    )
    warned = {str(one.where): one.message for one in spec.warnings_with(problem) if "prior" in one.path}
    assert set(warned) == {"space.x.prior", "space.lr.prior"}
    assert all(reason in message for message in warned.values())
    assert propose(Study(problem, spec, 7), [], 0) == propose(Study(plain, spec, 7), [], 0)


def test_samplers_that_use_priors_have_no_warning() -> None:
    assert not list(SamplerSpec().warnings_with(problem_of(BELIEVED)))


def test_what_is_proposed_beside_the_best_trial_is_not_the_best_trial_again() -> None:
    """The priors are wrong, so that few proposals come from them."""
    parameters = {"n": {"type": "int", "low": 1, "high": 3}, "c": {"type": "categorical", "choices": ["a", "b"]}}
    beside = 0
    for seed in range(20):
        view, known = StudyView(Study(problem_of({**BELIEVED, **parameters}), RANDOM, seed)), list[Params]()
        for number in range(20):
            params = view.propose([], number)
            if view.source(number) == "incumbent":
                assert params not in known
                beside += 1
            known.append(params)
            view.update([Observation(number, params, "completed", (-float(str(params["x"])),))])
    assert beside > 40


def test_a_range_of_an_earlier_version_whose_ends_have_the_same_logarithm_may_have_a_prior() -> None:
    narrow = {"low": 1e-5, "high": 1.0000000000000004e-5, "log": True, "prior": {"value": 1e-5}}
    problem = problem_of({"x": {"type": "float", **narrow}, "y": BELIEVED["x"]})
    for number in range(9):
        params = propose(Study(problem, RANDOM, 7), [], number)
        assert problem.space.mistakes_in(params) == []
