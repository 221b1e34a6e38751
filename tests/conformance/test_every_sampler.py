"""The contract of `search.samplers.sampler`, tested for each registered sampler.

A new sampler is tested here as soon as it is in the registry. Options that make it learn from few trials belong in
OPTIONS; the sources of its proposals in SOURCES, if they are others than `start_up` and `model`.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest

from search.problem import Observation, SpaceExhausted
from search.samplers import SAMPLERS, SamplerSpec
from search.samplers.registry import OWN_SAMPLERS
from search.samplers.sampler import Proposer, Source
from search.space.space import Params
from search.study import Study, StudyView, propose
from tests.conformance.sampler_problems import OPTIONS, PROBLEMS, SEED, changes_of, history_of

SLOW = {"gp": ("forbidden", "one value", "conditional")}
"""Samplers that take seconds for a proposal, with the problems that they are tested on, in `make test` alone."""
COUNT = 12


def cases() -> Iterator[Any]:
    """Each sampler, with each of its options, on each problem that suits it."""
    for name in SAMPLERS:
        marks = [pytest.mark.slow] if name in SLOW else []
        for options in OPTIONS.get(name, [{}]):
            spec = SamplerSpec(sampler=name, options=options)
            for label in SLOW.get(name, tuple(PROBLEMS)):
                if not spec.mistakes_with(PROBLEMS[label]):
                    study = Study(PROBLEMS[label], spec, SEED)
                    yield pytest.param(study, marks=marks, id=f"{name} {options or ''} {label}".replace("  ", " "))


every_case = pytest.mark.parametrize("study", list(cases()))


def proposal(study: Study, history: list[Observation], number: int) -> Params | str:
    """The params, or the reason why there are none."""
    try:
        return propose(study, history, number)
    except SpaceExhausted as reason:
        return str(reason)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_suits_some_problem(name: str) -> None:
    suits = [
        not SamplerSpec(sampler=name, options=options).mistakes_with(problem)
        for options in OPTIONS.get(name, [{}])
        for problem in PROBLEMS.values()
    ]
    assert any(suits)


@every_case
def test_a_proposal_is_a_function_of_history_seed_and_number(study: Study) -> None:
    history = history_of(study.problem, COUNT)
    first = proposal(study, history, COUNT)
    assert proposal(study, history, COUNT) == first
    assert proposal(study, history[::-1], COUNT) == first


@every_case
def test_a_proposal_is_a_configuration_of_the_space(study: Study) -> None:
    history = history_of(study.problem, COUNT)
    size = study.problem.space.size()
    for known in (0, 1, COUNT):
        params = proposal(study, history[:known], known)
        if isinstance(params, str):
            assert size is not None
            assert len({repr(one.params) for one in history[:known]}) >= size
        else:
            assert study.problem.space.mistakes_in(params) == []


@every_case
def test_a_view_that_learns_incrementally_proposes_the_same_as_a_rebuilt_one(study: Study) -> None:
    history = history_of(study.problem, COUNT)
    view = StudyView(study)
    for changes in changes_of(history):
        view.update(changes)
    assert _of_view(view, COUNT) == proposal(study, history, COUNT)


@every_case
def test_proposing_changes_nothing(study: Study) -> None:
    history = history_of(study.problem, COUNT)
    view = StudyView(study, history)
    first = _of_view(view, COUNT)
    _of_view(view, COUNT + 1)
    assert _of_view(view, COUNT) == first


@every_case
def test_observations_of_a_trial_do_not_change_its_own_proposal(study: Study) -> None:
    history = history_of(study.problem, COUNT)
    own = Observation(COUNT, history[0].params, "running")
    assert proposal(study, [*history, own], COUNT) == proposal(study, history, COUNT)


@every_case
def test_with_a_warm_start_a_proposal_is_still_a_function_of_the_history(study: Study) -> None:
    """The sixteenth proposal is from the earlier experiment, if the sampler takes such proposals."""
    spec = study.sampler.model_copy(update={"warm_start": ("earlier",)})
    warm, (own, *others) = replace(study, sampler=spec), history_of(study.problem, COUNT)
    known = [replace(one, number=-one.number, experiment="earlier") for one in others]
    view = StudyView(warm, [*known, own])
    params = _of_view(view, 15)
    if isinstance(params, str):
        return
    assert study.problem.space.mistakes_in(params) == []
    assert proposal(warm, [own, *reversed(known)], 15) == params
    assert (view.source(15) == "warm_start") == warm.weighs_warm_starts


def named_cases() -> Iterator[Any]:
    """Each sampler with the studies of its cases."""
    for name in SAMPLERS:
        studies = [case.values[0] for case in cases() if case.id.split()[0] == name]
        yield pytest.param(name, studies, marks=[pytest.mark.slow] if name in SLOW else [], id=name)


@pytest.mark.parametrize(("name", "studies"), list(named_cases()))
def test_other_trials_change_a_proposal_only_if_the_sampler_learns(name: str, studies: list[Study]) -> None:
    changes = (_after_trials(study, COUNT) != _after_trials(study, 0) for study in studies)
    assert any(changes) == SAMPLERS[name].learns, f"{name}: correct `learns`"


@every_case
def test_only_an_exhaustive_sampler_tries_each_configuration_once_by_itself(study: Study) -> None:
    size = study.problem.space.size()
    if size is None:
        return
    sampler = study.chosen_sampler.sampler
    proposer = sampler.proposer(study.scored_problem, SEED)
    tried: list[Params] = []
    with suppress(SpaceExhausted):
        for number in range(size + 1):
            tried.append(proposer.propose(number))
            proposer.learn(
                Observation(number, tried[-1], "completed", tuple(map(float, range(len(study.problem.directions)))))
            )
    is_exhaustive = len(tried) == size == len({repr(one) for one in tried})
    assert is_exhaustive == sampler.is_exhaustive, f"{sampler}: correct `is_exhaustive`"


def _after_trials(study: Study, count: int) -> Params | str:
    """The sampler's own proposal, without what a study adds to it, such as that proposals are distinct."""
    proposer = study.chosen_sampler.sampler.proposer(study.scored_problem, SEED)
    for one in history_of(study.problem, count):
        proposer.learn(one)
    try:
        return proposer.propose(COUNT)
    except SpaceExhausted as reason:
        return str(reason)


SOURCES = {"random": {"random"}, "qmc": {"sequence"}, "grid": {"grid"}, "brute_force": {"grid"}}


@every_case
def test_a_proposal_has_a_source(study: Study) -> None:
    """It is that of a model as soon as the sampler learns from the trials."""
    view, history = StudyView(study), history_of(study.problem, COUNT)
    name = study.chosen_sampler.name
    if name not in OWN_SAMPLERS:
        assert {view.source(0), view.source(COUNT)} <= {*get_args(Source)}
        return
    learned, others = SOURCES.get(name, {"model"}), SOURCES.get(name, {"start_up"})
    assert view.source(0) in others
    view.update(history)
    assert view.source(COUNT) in learned | ({"start_up"} if "start" not in str(study.sampler.options) else set())


@every_case
def test_an_estimate_is_of_the_newest_proposal_and_changes_nothing(study: Study) -> None:
    view, untold = (StudyView(study, history_of(study.problem, COUNT)) for _ in range(2))
    params = _of_view(view, COUNT)
    if isinstance(params, str):
        return
    estimate = view.estimate(COUNT, params)
    assert estimate is None or view.source(COUNT) == "model"
    assert view.estimate(COUNT + 1, params) is None
    assert _of_view(view, COUNT + 1) == _of_view(untold, COUNT + 1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_proposer_has_the_methods_of_the_contract(name: str) -> None:
    spec = SamplerSpec(sampler=name)
    problem = next(problem for problem in PROBLEMS.values() if not spec.mistakes_with(problem))
    proposer: Proposer = spec.chosen_for(problem).sampler.proposer(problem, SEED)
    proposer.learn(history_of(problem, 1)[0])
    assert problem.space.mistakes_in(proposer.propose(1)) == []


def _of_view(view: StudyView, number: int) -> Params | str:
    try:
        return view.propose([], number)
    except SpaceExhausted as reason:
        return str(reason)
