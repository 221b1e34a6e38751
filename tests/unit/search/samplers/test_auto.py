"""`auto` chooses a sampler for the problem."""

from dataclasses import replace
from typing import Any

import pytest

from search.problem import Observation, Problem, SpaceExhausted
from search.samplers import SamplerSpec
from search.samplers.gp import Gp
from search.samplers.tpe import Tpe
from search.space.space import Params, Space
from search.study import Study, StudyView

ONE_OF_TWO = {"type": "categorical", "choices": ["x", "y"]}
UNDER_X = {"type": "float", "low": 0, "high": 1, "when": {"c": "x"}}
FLAT = {name: {"type": "float", "low": 0, "high": 1} for name in "abcdef"}
SHORT = {"max_trials": 5000, "other_limits": ("limits.max_seconds",)}


@pytest.mark.parametrize(
    ("space", "facts", "chosen"),
    [
        ({"c": ONE_OF_TWO}, {"max_trials": 2}, "brute_force"),
        ({"c": ONE_OF_TWO}, {"max_trials": 1}, "gp"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 50}, "gp"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 50, "prunes": True}, "tpe"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 50, "constrained": True}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 4}, "gp"),
        (FLAT, {"max_trials": 100, "parallelism": 4, "prunes": True}, "gp"),
        (FLAT, {"max_trials": 100, "parallelism": 4, "prunes": True, "compares_objective": False}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 4, "prunes": True, "constrained": True}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 50}, "tpe"),
        (FLAT, {"max_trials": 20, "prunes": True, "population": True}, "qmc"),
        ({"c": ONE_OF_TWO}, {"max_trials": 6, "prunes": True, "population": True}, "qmc"),
        (
            {"c": ONE_OF_TWO, "p": UNDER_X},
            {"max_trials": 20, "population": True, "directions": ("minimize",) * 2},
            "qmc",
        ),
        (FLAT, {"max_trials": 1000}, "gp"),
        (FLAT, {"max_trials": 5000}, "cmaes"),
        (FLAT, {"max_trials": 5000, "constrained": True}, "tpe"),
        (FLAT, {}, "gp"),
        (FLAT, {"parallelism": 9}, "cmaes"),
        (FLAT, {"prunes": True}, "gp"),
        (FLAT, {"max_trials": 5000, "prunes": True}, "gp"),
        (FLAT, {"max_trials": 5000, "prunes": True, "parallelism": 9}, "tpe"),
        (FLAT, {"max_trials": 300, "prunes": True, "constrained": True}, "tpe"),
        (FLAT, {"max_trials": 100, "parallelism": 8, "directions": ("minimize",) * 2}, "gp"),
        (FLAT, {"max_trials": 100, "constrained": True, "directions": ("minimize",) * 2}, "gp"),
        (FLAT, {"max_trials": 100, "parallelism": 9, "directions": ("minimize",) * 2}, "tpe"),
        (FLAT, {"max_trials": 100, "prunes": True, "directions": ("minimize",) * 2}, "tpe"),
        (FLAT, {"max_trials": 101, "directions": ("minimize",) * 2}, "tpe"),
        (FLAT, {"max_trials": 200, "directions": ("minimize",) * 3}, "gp"),
        (FLAT, {"max_trials": 201, "directions": ("minimize",) * 3}, "tpe"),
        (FLAT, {"max_trials": 100, "prunes": True, "directions": ("minimize",) * 4}, "tpe"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 2}, "nsga2"),
        (FLAT, {"max_trials": 5000, "directions": ("minimize",) * 4}, "nsga3"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, {"max_trials": 5000, "directions": ("minimize",) * 4}, "tpe"),
        (FLAT, SHORT, "gp"),
        (FLAT, SHORT | {"parallelism": 9}, "tpe"),
        (FLAT, SHORT | {"constrained": True}, "gp"),
        (FLAT, SHORT | {"prunes": True}, "gp"),
        ({"c": ONE_OF_TWO, "p": UNDER_X}, SHORT, "gp"),
        (FLAT, SHORT | {"directions": ("minimize",) * 2}, "tpe"),
        (FLAT, SHORT | {"directions": ("minimize",) * 4}, "tpe"),
        (FLAT, SHORT | {"max_trials": 100, "directions": ("minimize",) * 2}, "gp"),
        (FLAT, SHORT | {"prunes": True, "population": True}, "qmc"),
        ({"c": ONE_OF_TWO}, SHORT, "brute_force"),
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


@pytest.mark.parametrize("warm_start", [(), ("earlier",)])
def test_a_population_has_all_of_its_members_in_a_space_with_fewer_configurations(warm_start: tuple[str, ...]) -> None:
    space = Space.model_validate({"c": ONE_OF_TWO})
    problem = Problem(space, ("minimize",), prunes=True, population=True, max_trials=6)
    view = StudyView(Study(problem, SamplerSpec(sampler="auto", warm_start=warm_start), 7))
    for number in range(6):
        view.update([Observation(number, view.propose([], number), "running")])


def test_gp_and_tpe_take_turns_and_learn_from_the_same_trials() -> None:
    problem = Problem(Space.model_validate({name: FLAT[name] for name in "ab"}), ("minimize",), max_trials=300)
    trials = [
        Observation(number, {"a": number / 30, "b": number * 7 % 30 / 30}, "completed", (number * 11 % 30 / 30,))
        for number in range(19)
    ]
    by_auto, by_gp, by_tpe = (
        StudyView(Study(problem, SamplerSpec(sampler=name), 7), trials) for name in ("auto", "gp", "tpe")
    )
    for number, turn in {19: by_gp, 20: by_tpe, 21: by_gp, 22: by_gp, 23: by_tpe, 199: by_gp, 200: by_tpe}.items():
        assert by_auto.propose([], number) == turn.propose([], number)
        assert by_auto.source(number) == "model"


def test_under_conditions_every_third_proposal_is_of_tpe_with_a_model_for_each_branch() -> None:
    problem = Problem(Space.model_validate({"c": ONE_OF_TWO, "p": UNDER_X}), ("minimize",), max_trials=300)
    params: list[Params] = [{"c": "x", "p": number / 30} if number % 3 else {"c": "y"} for number in range(19)]
    trials = [Observation(n, one, "completed", (n * 11 % 30 / 30,)) for n, one in enumerate(params)]
    group = SamplerSpec(sampler="tpe", options={"group": True})
    by_auto, by_gp, by_tpe = (
        StudyView(Study(problem, spec, 7), trials)
        for spec in (SamplerSpec(sampler="auto"), SamplerSpec(sampler="gp"), group)
    )
    for number, turn in {19: by_gp, 20: by_tpe, 21: by_gp, 22: by_gp, 23: by_tpe, 200: by_tpe}.items():
        assert by_auto.propose([], number) == turn.propose([], number)


def test_where_gp_would_draw_parameters_under_conditions_at_random_tpe_proposes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The private parts of the Optuna that is installed differ."""
    for module in ("gp", "gp_and_tpe"):
        monkeypatch.setattr(f"search.samplers.{module}.usable", lambda _: False)
    problem = Problem(Space.model_validate({"c": ONE_OF_TWO, "p": UNDER_X}), ("minimize",), max_trials=300)
    trials = [Observation(n, {"c": "x", "p": n / 12}, "completed", (n * 7 % 12 / 12,)) for n in range(12)]
    group = SamplerSpec(sampler="tpe", options={"group": True})
    by_auto, by_tpe = (StudyView(Study(problem, spec, 7), trials) for spec in (SamplerSpec(sampler="auto"), group))
    assert by_auto.propose([], 12) == by_tpe.propose([], 12)


def test_without_torch_tpe_models_each_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gp, "missing", lambda: "needs torch")
    problem = Problem(Space.model_validate({"c": ONE_OF_TWO, "p": UNDER_X}), ("minimize",), max_trials=300)
    chosen = SamplerSpec(sampler="auto").chosen_for(problem)
    assert (chosen.name, chosen.sampler) == ("tpe", Tpe(group=True))
    assert "needs torch" in str(chosen.reason)


@pytest.mark.parametrize("scores_curves_of_tpe", [True, False])
def test_gp_and_tpe_take_turns_where_trials_are_stopped_and_many(scores_curves_of_tpe: bool) -> None:
    problem = Problem(
        Space.model_validate({name: FLAT[name] for name in "ab"}),
        ("minimize",),
        max_trials=300,
        prunes=True,
        parallelism=4 if scores_curves_of_tpe else 8,
    )
    trials = [
        Observation(
            number,
            {"a": number / 30, "b": number * 7 % 30 / 30},
            "pruned",
            last_step=1,
            last_value=number * 11 % 30 / 30,
            rungs=((1, number * 11 % 30 / 30),),
        )
        for number in range(19)
    ]
    by_auto, by_gp, by_tpe = (
        StudyView(Study(problem, SamplerSpec(sampler=name), 7), trials) for name in ("auto", "gp", "tpe")
    )
    assert (by_auto.scores_curves, by_tpe.scores_curves) == (True, scores_curves_of_tpe)
    for number, turn in {19: by_gp, 20: by_tpe, 21: by_gp, 23: by_tpe, 199: by_gp, 200: by_tpe, 299: by_tpe}.items():
        assert by_auto.propose([], number) == turn.propose([], number)


@pytest.mark.parametrize(
    ("facts", "is_random"),
    [
        ({"max_trials": 4}, True),
        ({"max_trials": 5}, False),
        ({"max_trials": 70, "parallelism": 64}, True),
        ({"max_trials": 74, "parallelism": 64}, False),
        ({"max_trials": 70, "parallelism": 64, "prunes": True}, False),  # stopped trials teach long before
        ({}, False),
    ],
)
def test_the_reason_says_if_the_budget_ends_before_the_model_starts(facts: dict[str, Any], is_random: bool) -> None:
    problem = Problem(Space.model_validate(FLAT), ("minimize",), **facts)
    reason = SamplerSpec(sampler="auto").chosen_for(problem).reason or ""
    assert ("within this budget it is not used" in reason) == is_random


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"parallelism": 9},
        {"constrained": True, "parallelism": 9},
        {"directions": ("minimize",) * 2},
        {"directions": ("minimize",) * 4},
    ],
)
def test_the_reason_says_that_another_limit_may_cut_a_large_budget_short(facts: dict[str, Any]) -> None:
    problem = Problem(Space.model_validate(FLAT), **{"directions": ("minimize",), **SHORT, **facts})
    both = replace(problem, other_limits=("limits.max_seconds", "limits.no_improvement"))
    auto = SamplerSpec(sampler="auto")
    assert "5000 trials that limits.max_seconds may cut short" in str(auto.chosen_for(problem).reason)
    assert "limits.max_seconds or limits.no_improvement may cut" in str(auto.chosen_for(both).reason)
    assert "may cut" not in str(auto.chosen_for(replace(problem, max_trials=1999)).reason)


def finite(values: int, **facts: Any) -> Problem:
    return Problem(Space.model_validate({"n": {"type": "int", "low": 1, "high": values}}), ("minimize",), **facts)


@pytest.mark.parametrize(
    ("values", "facts", "chosen", "ends_with_space"),
    [
        (10, {}, "brute_force", False),
        (11, {}, "gp", True),
        (10**6, {}, "gp", True),
        (10, {"max_trials": 10}, "brute_force", False),
        (11, {"max_trials": 10}, "gp", False),
        (11, {"max_trials": 100_000}, "gp", True),
        (3_000, {"max_trials": 100_000, "parallelism": 16}, "tpe", True),
        (10, {"other_limits": ("limits.max_seconds",)}, "brute_force", False),
        (100, {"other_limits": ("limits.max_seconds",)}, "gp", True),
        (101, {"other_limits": ("limits.max_seconds",)}, "gp", False),
        (3_000, {"max_trials": 3_000, "other_limits": ("limits.max_seconds",)}, "gp", True),
        (11, {"max_trials": 11, "population": True}, "qmc", False),
    ],
)
def test_a_finite_space_for_which_the_trials_are_enough_ends_the_search_and_a_model_orders_it(
    values: int, facts: dict[str, Any], chosen: str, ends_with_space: bool
) -> None:
    found = SamplerSpec(sampler="auto").chosen_for(finite(values, **facts))
    assert (found.name, found.ends_with_space) == (chosen, ends_with_space)
    assert ("the search ends when all" in str(found.reason)) == ends_with_space
    assert found.is_exhaustive == (ends_with_space or chosen == "brute_force")


@pytest.mark.parametrize("values", [10, 11])
def test_with_repetitions_a_finite_space_ends_the_search_only_if_nothing_else_does(values: int) -> None:
    spec = SamplerSpec(sampler="auto", repeats=True)
    found = spec.chosen_for(finite(values, max_trials=100))
    assert (found.name, found.is_exhaustive) == ("gp", False)
    assert not Study(finite(values, max_trials=100), spec, 7).is_distinct
    assert spec.chosen_for(finite(values)).is_exhaustive
    assert Study(finite(11), spec, 7).is_distinct


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"directions": ("minimize",) * 2}, "a space of 500 configurations is too small for generations to evolve"),
        ({"directions": ("minimize",) * 2, "parallelism": 9}, "a space of 500 configurations is too small"),
        ({"parallelism": 9}, "tpe suits any space, a space of 500 configurations and a parallelism of 9"),
    ],
)
def test_the_reason_names_the_space_where_it_ends_before_the_budget(facts: dict[str, Any], part: str) -> None:
    problem = replace(finite(500, max_trials=100_000), **facts)
    reason = str(SamplerSpec(sampler="auto").chosen_for(problem).reason)
    assert part in reason
    assert "budget" not in reason


@pytest.mark.parametrize("max_trials", [16, 100, None])
def test_a_model_starts_as_with_so_many_trials_as_there_are_configurations(max_trials: int | None) -> None:
    space = Space.model_validate({name: {"type": "int", "low": 0, "high": 1} for name in "abcd"})
    problem = Problem(space, ("minimize",), max_trials=max_trials)
    expected = Gp().startup_count(replace(problem, max_trials=16))
    assert expected < Gp().startup_count(replace(problem, max_trials=100))
    view, sources = StudyView(Study(problem, SamplerSpec(sampler="auto"), 7)), list[str]()
    for number in range(expected + 1):
        params = view.propose([], number)
        sources.append(view.source(number))
        view.update([Observation(number, params, "completed", (float(number),))])
    assert sources == ["start_up"] * expected + ["model"]


def test_the_reason_says_that_the_space_ends_before_the_model_begins() -> None:
    problem = finite(11, max_trials=100, parallelism=8)
    assert "so within this space it is not used" in str(SamplerSpec(sampler="auto").chosen_for(problem).reason)


@pytest.mark.parametrize("limits", [(), ("limits.max_seconds",)])
def test_a_space_may_have_more_configurations_than_a_float_can_say(limits: tuple[str, ...]) -> None:
    wide = Space.model_validate({f"n{n}": {"type": "int", "low": 0, "high": 99} for n in range(160)})
    found = SamplerSpec(sampler="auto").chosen_for(Problem(wide, ("minimize",), other_limits=limits))
    assert found.is_exhaustive == (not limits)
    assert ("over 1e+300 configurations" in str(found.reason)) == (not limits)


@pytest.mark.parametrize("parallelism", [1, 9])
def test_a_model_tries_each_configuration_of_a_finite_space_once(parallelism: int) -> None:
    """A failed trial counts as a try."""
    problem = finite(14, max_trials=100, parallelism=parallelism)
    view, tried = StudyView(Study(problem, SamplerSpec(sampler="auto"), 7)), [4]
    view.update([Observation(0, {"n": 4}, "failed")])
    for number in range(1, 14):
        n = int(str(view.propose([], number)["n"]))
        tried.append(n)
        view.update([Observation(number, {"n": n}, "completed", (float((n - 9) ** 2),))])
    assert sorted(tried) == list(range(1, 15))
    with pytest.raises(SpaceExhausted, match=r"all configurations of the space \(14\) have been tried"):
        view.propose([], 14)
    assert view.propose([], 13) == {"n": tried[13]}, "its own trial does not count"


def test_the_reason_says_that_only_another_limit_ends_the_search() -> None:
    problem = Problem(Space.model_validate(FLAT), ("minimize",) * 2, other_limits=("limits.max_seconds",))
    reason = "a budget of trials that only limits.max_seconds limits may be too small for generations to evolve"
    assert reason in str(SamplerSpec(sampler="auto").chosen_for(problem).reason)


def test_a_small_space_is_tried_as_a_whole_whatever_an_earlier_experiment_has_tried() -> None:
    """The best of the earlier experiment may be the best again."""
    space = Space.model_validate({"n": {"type": "int", "low": 1, "high": 9}})
    spec = SamplerSpec(sampler="auto", warm_start=("earlier",))
    problem = Problem(space, ("minimize",), max_trials=9)
    earlier = [Observation(-n, {"n": n}, "completed", (float(n),), experiment="earlier") for n in range(1, 10)]
    view, tried = StudyView(Study(problem, spec, 7), earlier), list[Params]()
    for number in range(9):
        tried.append(view.propose([], number))
        view.update([Observation(number, tried[-1], "running")])
    assert sorted(int(str(params["n"])) for params in tried) == list(range(1, 10))
    assert "does not learn" in str(*spec.warnings_with(problem))
