"""Proposals from earlier experiments: by rank, and as far as they predict what this experiment's own trials show."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from search.warm_starts.similarity import MAX_RANKED, share, similarity
from tests.conftest import examples

pytestmark = pytest.mark.slow

Value = Callable[[Params], float]
XY = {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}}


def value(params: Params) -> float:
    return (float(str(params["x"])) - 0.3) ** 2 + (float(str(params["y"])) - 0.7) ** 2


def inverted(params: Params) -> float:
    return -value(params)


def a_study(parameters: dict[str, Any] = XY, *names: str, sampler: str = "tpe", **facts: Any) -> Study:
    problem = Problem(Space.model_validate(parameters), facts.pop("directions", ("minimize",)), **facts)
    return Study(problem, SamplerSpec(sampler=sampler, warm_start=names), 7)


def earlier(name: str, of: Value, count: int = 40, first: int = 0) -> list[Observation]:
    random = np.random.default_rng(3)
    found = [dict(zip("xy", random.random(2).tolist(), strict=True)) for _ in range(count)]
    return [
        Observation(-1 - first - index, params, "completed", (of(params),), experiment=name)
        for index, params in enumerate(found)
    ]


def run(view: StudyView, count: int, of: Value = value) -> list[str]:
    """The sources of the proposals."""
    sources = list[str]()
    for number in range(count):
        params = view.propose([], number)
        sources.append(view.source(number))
        view.update([Observation(number, params, "completed", (of(params),))])
    return sources


def test_a_similar_experiment_gets_much_weight_and_finds_good_configurations_early() -> None:
    view = StudyView(a_study(XY, "good"), earlier("good", lambda params: 1000 + 5 * value(params)))
    sources = run(view, 12)
    assert sources[:2] == ["start_up"] * 2
    assert sources.count("warm_start") > 2
    contribution = view.contribution(12)
    assert contribution.weights["good"] > 0.7
    best = min(value(view.propose([], number)) for number in range(12, 40) if view.source(number) == "warm_start")
    assert best < 0.01


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_an_inverted_experiment_changes_nothing(sampler: str) -> None:
    with_it = StudyView(a_study(XY, "bad", sampler=sampler), earlier("bad", inverted))
    without = StudyView(a_study(sampler=sampler))
    assert "warm_start" not in run(with_it, 20)
    run(without, 20)
    assert with_it.propose([], 20) == without.propose([], 20)
    assert with_it.contribution(20).weights == {"bad": 0.0}


@pytest.mark.parametrize("parallelism", [2, 4, 8])
def test_an_inverted_experiment_changes_nothing_where_several_trials_run_at_the_same_time(parallelism: int) -> None:
    views = [
        StudyView(a_study(XY, "bad", parallelism=parallelism), earlier("bad", inverted)),
        StudyView(a_study(parallelism=parallelism)),
    ]
    proposed: list[list[Params]] = [[], []]
    for view, all_ in zip(views, proposed, strict=True):
        for number in range(24):
            all_.append(view.propose([], number))
            view.update([Observation(number, all_[-1], "running")])
            if (ended := number - parallelism + 1) >= 0:
                view.update([Observation(ended, all_[ended], "completed", (value(all_[ended]),))])
    assert proposed[0] == proposed[1]


def test_of_several_experiments_the_one_that_predicts_the_trials_is_used() -> None:
    known = [*earlier("bad", inverted), *earlier("good", value, first=40)]
    view = StudyView(a_study(XY, "bad", "good"), known)
    run(view, 20)
    weights = view.contribution(20).weights
    assert list(weights) == ["bad", "good"]
    assert weights["bad"] == 0 < weights["good"]
    assert {view.contribution(number).experiment for number in range(20, 60)} == {None, "good"}


def test_neither_unit_nor_range_of_an_experiments_values_matters() -> None:
    known = earlier("good", value)
    exponential = [replace(one, values=(float(np.exp(50 * value(one.params))) - 1e6,)) for one in known]
    views = [StudyView(a_study(XY, "good"), trials) for trials in (known, exponential)]
    assert run(views[0], 15) == run(views[1], 15)
    assert views[0].propose([], 15) == views[1].propose([], 15)


def test_of_trials_that_start_together_one_in_sixteen_is_from_earlier_experiments() -> None:
    view = StudyView(a_study(XY, "good"), earlier("good", value))
    sources = list[str]()
    for number in range(32):
        view.update([Observation(number, view.propose([], number), "running")])
        sources.append(view.source(number))
    assert [number for number, source in enumerate(sources) if source == "warm_start"] == [15, 31]


def test_several_objectives_and_constraints_are_ranked() -> None:
    def observed(one: Observation) -> Observation:
        x, y = float(str(one.params["x"])), float(str(one.params["y"]))
        return replace(one, values=(abs(x - 0.5), abs(x - 0.5) + abs(y - 0.5)), constraints=(x - 0.6,))

    study = a_study(XY, "good", directions=("minimize", "minimize"), constrained=True)
    view = StudyView(study, map(observed, earlier("good", value)))
    for number in range(12):
        view.update([observed(Observation(number, view.propose([], number), "completed"))])
    assert view.contribution(12).weights["good"] > 0.5


@given(data=st.data(), sampler=st.sampled_from(["tpe", "nsga2", "cmaes"]))
@examples(20)
def test_a_proposal_belongs_to_any_space_and_is_the_same_for_the_same_history(
    data: st.DataObject, draws: Any, sampler: str
) -> None:
    space = data.draw(draws.forbidden(data.draw(draws.spaces())))
    history = data.draw(draws.histories(space, max_size=12))
    known = [
        replace(one, number=-1 - one.number, experiment=data.draw(st.sampled_from("ab")))
        for one in data.draw(draws.histories(space, max_size=12))
    ]
    spec = SamplerSpec(sampler=sampler, warm_start=("a", "b"))
    study = Study(Problem(space, ("minimize",)), spec, data.draw(st.integers(0, 2**32 - 1)))
    view, other = StudyView(study, [*known, *history]), StudyView(study, [*history[::-1], *known[::-1]])
    for number in (3, 41):
        params = view.propose([], number)
        assert space.mistakes_in(params) == []
        assert other.propose([], number) == params
        assert other.contribution(number) == view.contribution(number)
        rest = [*known, *(one for one in history if one.number != number)]
        own = Observation(number, params, "running")
        assert propose(study, [*rest, own], number) == propose(study, rest, number)


def test_samplers_with_a_list_of_their_own_and_random_take_no_proposals_from_earlier_experiments() -> None:
    finite = {name: {"type": "int", "low": 0, "high": 9} for name in "xy"}
    for sampler in ("random", "qmc", "grid", "brute_force"):
        assert not a_study(finite, "good", sampler=sampler).weighs_warm_starts
    assert a_study(finite, "good", sampler="gp").weighs_warm_starts
    assert not a_study(finite).weighs_warm_starts


def test_similarity_follows_the_ranks_and_the_share_falls_with_the_own_trials() -> None:
    standing = np.linspace(0, 1, 20)
    assert similarity(standing**3, standing) > 0.9
    assert similarity(1 - standing, standing) == 0
    assert similarity(np.ones(20), standing) < 0.1
    assert similarity(np.array([]), np.array([])) == pytest.approx(0.4)
    shares = [share([0.8, 0.1], count) for count in (0, 10, 100, MAX_RANKED - 1)]
    assert shares == sorted(shares, reverse=True)
    assert (share([0.8], MAX_RANKED), share([0.0], 3), share([], 3)) == (0, 0, 0)
