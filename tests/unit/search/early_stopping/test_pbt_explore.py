"""The explore step stays within any space, and changes what it perturbs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping.rules.pbt_explore import Explore, explored
from search.space.conditions import Range
from search.space.space import Space
from tests.conftest import examples

FACTORS = (0.8, 1.2)
PERTURB, RESAMPLE = Explore(0, FACTORS), Explore(1, FACTORS)
WIDE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "layers": {"type": "int", "low": 1, "high": 8},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adam", "lion"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
}


def chance(seed: int) -> Callable[[], float]:
    return np.random.default_rng(abs(seed)).random


def seen(space: dict[str, Any], params: dict[str, Any], how: Explore, name: str, count: int = 200) -> set[Any]:
    whole = Space.model_validate(space)
    return {explored(whole, params, how, chance(seed)).get(name) for seed in range(count)}


@examples(150)
@given(st.data(), st.floats(0, 1), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=3), st.integers())
def test_an_explored_configuration_belongs_to_the_space(
    draws: Any, data: st.DataObject, probability: float, factors: list[float], seed: int
) -> None:
    space = data.draw(draws.spaces().flatmap(draws.forbidden))
    params = data.draw(draws.configurations(space))
    how = Explore(probability, factors)
    found = explored(space, params, how, chance(seed))
    assert space.mistakes_in(found) == []
    assert list(found) == [name for name in space.root if name in found]
    assert explored(space, params, how, chance(seed)) == found


@examples(100)
@given(st.data(), st.integers())
def test_params_of_another_space_give_a_configuration_of_this_one(draws: Any, data: st.DataObject, seed: int) -> None:
    """As after a space was narrowed: only the types of the parameters stay the same."""
    wide = Space.model_validate(WIDE)
    params = data.draw(draws.configurations(wide))
    narrow = Space.model_validate(
        {
            "lr": {"type": "float", "low": 1e-2, "high": 1e-1, "log": True},
            "layers": {"type": "int", "low": 3, "high": 4},
            "optimizer": {"type": "categorical", "choices": ["sgd"]},
            "momentum": {"type": "float", "low": 0.5, "high": 0.6, "when": {"optimizer": "sgd"}},
        }
    )
    assert narrow.mistakes_in(explored(narrow, params, Explore(0.5, FACTORS), chance(seed))) == []


def test_a_perturbed_float_is_multiplied_and_kept_within_its_bounds() -> None:
    lr = {"lr": WIDE["lr"]}
    assert seen(lr, {"lr": 0.1}, PERTURB, "lr") == {0.1 * 0.8, 0.1 * 1.2}
    assert seen(lr, {"lr": 0.9}, PERTURB, "lr") == {0.9 * 0.8, 1.0}


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ({"type": "int", "low": 0, "high": 100}, 50, {40, 60}),
        ({"type": "int", "low": 1, "high": 8}, 2, {1, 3}),  # 1.6 and 2.4 both round to 2
        ({"type": "int", "low": 1, "high": 8}, 1, {1, 2}),
        ({"type": "int", "low": 16, "high": 256, "step": 16}, 64, {48, 80}),
        ({"type": "int", "low": 1, "high": 1024, "log": True}, 1000, {800, 1024}),
        ({"type": "float", "low": 0.0, "high": 1.0, "step": 0.1}, 0.3, {0.2, 0.4}),
        ({"type": "float", "low": -2.0, "high": 2.0}, -1, {-0.8, -1.2}),
        ({"type": "categorical", "choices": ["a", "b", "c", "d"]}, "b", {"a", "c"}),
        ({"type": "categorical", "choices": ["a", "b", "c", "d"]}, "d", {"c", "d"}),
    ],
)
def test_a_perturbed_value_becomes_a_neighbouring_one(
    parameter: dict[str, Any], value: Any, expected: set[Any]
) -> None:
    assert seen({"p": parameter}, {"p": value}, PERTURB, "p") == expected


def test_a_resampled_value_is_from_the_whole_range() -> None:
    """Uniformly on the parameter's scale."""
    space = Space.model_validate({"lr": WIDE["lr"], "units": {"type": "int", "low": 1, "high": 1000, "log": True}})
    found: list[dict[str, Any]] = [
        explored(space, {"lr": 0.1, "units": 7}, RESAMPLE, chance(seed)) for seed in range(2000)
    ]
    assert sum(one["lr"] < 1e-2 for one in found) / 2000 == pytest.approx(0.5, abs=0.05)
    small = (math.log(31.5) - math.log(0.5)) / (math.log(1000.5) - math.log(0.5))
    assert sum(one["units"] <= 31 for one in found) / 2000 == pytest.approx(small, abs=0.05)


def test_the_resampled_share_is_the_probability() -> None:
    space = Space.model_validate({"lr": WIDE["lr"]})
    how = Explore(0.25, FACTORS)
    found = [explored(space, {"lr": 0.1}, how, chance(seed))["lr"] for seed in range(2000)]
    assert sum(one in (0.1 * 0.8, 0.1 * 1.2) for one in found) / 2000 == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize("probability", [0, 1])
def test_parameters_without_a_name_in_the_list_are_kept(probability: float) -> None:
    how = Explore(probability, FACTORS, names=["lr"])
    params = {"lr": 0.1, "layers": 4, "optimizer": "sgd", "momentum": 0.5}
    assert len(seen(WIDE, params, how, "lr")) > 1
    for name in ("layers", "optimizer", "momentum"):
        assert seen(WIDE, params, how, name) == {params[name]}


def test_a_kept_value_that_the_space_has_lost_is_replaced() -> None:
    narrow = WIDE | {"layers": {"type": "int", "low": 6, "high": 8}}
    params = {"lr": 0.1, "layers": 4, "optimizer": "adam"}
    assert seen(narrow, params, Explore(0, FACTORS, names=["lr"]), "layers") <= {6, 7}


def test_all_is_kept_where_a_change_is_forbidden() -> None:
    space = Space.model_validate(WIDE).without([{"lr": Range(min=0.11)}])
    params: dict[str, Any] = {"lr": 0.1, "layers": 4, "optimizer": "adam"}
    found = [explored(space, params, Explore(0, FACTORS, names=["lr"]), chance(seed)) for seed in range(50)]
    assert {one["lr"] for one in found} == {0.1 * 0.8, 0.1}
    assert {one["layers"] for one in found} == {4}


def test_conditional_parameters_exist_only_under_their_parents() -> None:
    sgd = {"lr": 0.1, "layers": 4, "optimizer": "sgd", "momentum": 0.5}
    without = seen(WIDE, {**sgd, "optimizer": "lion"} | {"momentum": 0.5}, PERTURB, "momentum")
    assert without == {None}  # the choices next to lion are not sgd
    adam = {name: value for name, value in sgd.items() if name != "momentum"} | {"optimizer": "adam"}
    drawn = seen(WIDE, adam, PERTURB, "momentum")
    assert None in drawn
    assert len(drawn) > 50


@pytest.mark.parametrize(
    ("parameter", "moved"),
    [
        ({"type": "int", "low": -5, "high": 5}, {-1, 1}),
        ({"type": "float", "low": 0, "high": 1, "step": 0.1}, {0.0, 0.1}),
        ({"type": "int", "low": 0, "high": 0}, {0}),
    ],
)
def test_a_number_with_steps_leaves_0(parameter: dict[str, Any], moved: set[float]) -> None:
    assert seen({"n": parameter}, {"n": 0}, PERTURB, "n") == moved
