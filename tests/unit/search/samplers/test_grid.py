"""Grid and brute force try each configuration once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from search.problem import Observation, Problem, SpaceExhausted
from search.samplers import SamplerSpec
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.unit.search.samplers.optuna_comparison import MIXED

SPACE = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
    }
)


GRID = SamplerSpec(sampler="grid", options={"search_space": {"lr": [0.1, 0.01], "momentum": [0.0, 0.5, 0.9]}})


def study_of(space: Space = SPACE, sampler: SamplerSpec = GRID, seed: int = 7) -> Study:
    return Study(Problem(space, ("minimize",)), sampler, seed)


def tried(number: int, params: Params) -> Observation:
    return Observation(number, params, "completed", (0.0,), 1, 0.0)


def walked(study: Study, known: Sequence[Observation] = ()) -> list[Params]:
    """All further proposals, if their trials run at the same time."""
    view = StudyView(study, known)
    found: list[Params] = []
    while True:
        number = len(known) + len(found)
        try:
            found.append(view.propose([], number))
        except SpaceExhausted:
            return found
        view.update([Observation(number, found[-1], "running")])


def test_grid_proposes_each_configuration_once_until_the_space_is_exhausted() -> None:
    found = walked(study_of())
    assert len(found) == 2 * 16 * (3 + 1)
    assert len({repr(params) for params in found}) == len(found)
    assert all(SPACE.mistakes_in(params) == [] for params in found)
    with pytest.raises(SpaceExhausted, match=r"all configurations of the grid \(128\)"):
        propose(study_of(), [tried(n, params) for n, params in enumerate(found)], len(found))


def test_grid_changes_all_parameters_of_a_large_space() -> None:
    """The space has 10^300 configurations; the order of more than 2^256 used to keep the first ones constant."""
    space = Space.model_validate({f"x{index:03}": {"type": "int", "low": 0, "high": 9} for index in range(300)})
    view = StudyView(study_of(space, SamplerSpec(sampler="grid")))
    found = []
    for number in range(20):
        found.append(view.propose([], number))
        view.update([Observation(number, found[-1], "running")])
    assert all(len({params[name] for params in found}) > 2 for name in space.root)


def test_the_order_of_grid_depends_on_the_seed() -> None:
    one, other = walked(study_of()), walked(study_of(seed=8))
    assert one != other
    assert sorted(map(repr, one)) == sorted(map(repr, other))
    assert len({params["hidden"] for params in one[:16]}) > 5


def test_grid_skips_enqueued_configurations() -> None:
    space = Space.model_validate({"p": {"type": "float", "low": 0, "high": 1, "step": 1}})
    study = study_of(space, SamplerSpec(sampler="grid"))
    assert propose(study, [tried(0, {"p": 1})], 1) == {"p": 0.0}


@pytest.mark.parametrize(
    ("parameter", "search"),
    [
        ({"low": 0.0, "high": 0.5, "step": 0.1}, {"sampler": "grid"}),
        ({"low": 0.0, "high": 0.5, "step": 0.1}, {"sampler": "brute_force"}),
        ({"low": 0.0, "high": 0.5}, {"sampler": "grid", "options": {"search_space": {"p": [0.1, 0.3]}}}),
        ({"low": 1e-9, "high": 1, "log": True}, {"sampler": "grid", "options": {"search_space": {"p": [0.3, 3e-9]}}}),
    ],
    ids=["grid of steps", "brute force", "listed values", "listed values, log"],
)
def test_a_value_of_the_grid_is_recognized_despite_a_floats_rounding(
    parameter: dict[str, Any], search: dict[str, Any]
) -> None:
    space = Space.model_validate({"p": {"type": "float", **parameter}})
    study = study_of(space, SamplerSpec.model_validate(search))
    tried_values = [params["p"] for params in walked(study)]
    assert 0.3 in tried_values
    assert 0.1 + 0.2 != 0.3
    left = [params["p"] for params in walked(study, [tried(0, {"p": 0.1 + 0.2})])]
    assert sorted(left) == sorted(one for one in tried_values if one != 0.3)  # type: ignore[type-var]


def test_listed_values_that_differ_by_less_than_a_rounding_are_both_tried() -> None:
    values = [0.3, 0.1 + 0.2]
    grid = SamplerSpec(sampler="grid", options={"search_space": {"p": values}})
    space = Space.model_validate({"p": {"type": "float", "low": 0, "high": 1}})
    assert sorted(params["p"] for params in walked(study_of(space, grid))) == values  # type: ignore[type-var]


def test_conditions_hold_for_values_of_the_grid_that_differ_by_rounding() -> None:
    parameters = {
        "p": {"type": "float", "low": 0, "high": 1, "step": 0.1},
        "child": {"type": "int", "low": 0, "high": 1, "when": {"p": [0.3]}},
    }
    space = Space.model_validate(parameters).without([{"p": (0.6,)}])
    values = [0.1 * index for index in range(8)]
    found = walked(study_of(space, SamplerSpec(sampler="grid", options={"search_space": {"p": values}})))
    assert [space.mistakes_in(params) for params in found] == [[]] * len(found)
    assert sorted(params["p"] for params in found) == [0, 0.1, 0.2, *[0.1 * 3] * 2, 0.4, 0.5, 0.1 * 7]  # type: ignore[type-var]


def test_grid_refuses_a_continuous_parameter_without_values_and_values_outside_the_space() -> None:
    options: Any = {"search_space": {"momentum": [0.5, 2, 0.5], "hidden": [], "depth": [1]}}
    mistakes = [
        str(mistake)
        for mistake in SamplerSpec(sampler="grid", options=options).mistakes_with(Problem(SPACE, ("minimize",)))
    ]
    assert mistakes == [
        "space.lr: grid needs a step here, or values in search.options.search_space.lr",
        "search.options.search_space.momentum.1: must be between 0 and 0.99, not 2",
        "search.options.search_space.momentum.2: 0.5 appears twice",
        "search.options.search_space.hidden: must have at least one value",
        "search.options.search_space.depth: unknown parameter; the space has lr, hidden, optimizer, momentum",
    ]


def test_brute_force_tries_each_configuration_once_and_may_repeat_running_ones() -> None:
    space = Space.model_validate({"a": {"type": "int", "low": 1, "high": 3}, "b": MIXED.root["act"]})
    once = walked(study_of(space, SamplerSpec(sampler="brute_force")))
    found = [Observation(number, params, "running") for number, params in enumerate(once)]
    assert len({repr(one.params) for one in found}) == len(found) == 9
    patient = study_of(space, SamplerSpec(sampler="brute_force", options={"avoid_premature_stop": True}))
    assert propose(patient, found, 9) in [one.params for one in found]
    over = [replace(one, status="failed") for one in found]
    assert propose(patient, [*over[:4], found[4], *over[5:]], 9) == found[4].params
    with pytest.raises(SpaceExhausted, match=r"all configurations of the grid \(9\)"):
        propose(patient, over, 9)


@pytest.mark.parametrize("sampler", ["grid", "brute_force"])
def test_a_space_with_more_configurations_than_python_writes_in_decimal_is_walked(sampler: str) -> None:
    space = Space.model_validate({f"x{one}": {"type": "int", "low": 0, "high": 2**53} for one in range(800)})
    view = StudyView(study_of(space, SamplerSpec(sampler=sampler)), ())
    first = view.propose([], 0)
    view.update([Observation(0, first, "running")])
    assert view.propose([], 1) != first
