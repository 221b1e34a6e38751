"""Search spaces: their mistakes, their configurations and their sizes."""

import time
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from search.space.conditions import Range
from search.space.forbidden import Forbidden, dead_branches, mistakes_in_forbidden, still_possible
from search.space.scalars import same
from search.space.space import Params, Space

DIGITS = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
}
FLAT = {"type": "float", "low": 0, "high": 1}
GOOD = {"lr": 0.1, "hidden": 64, "optimizer": "sgd", "momentum": 0.9}


class Spec(BaseModel):
    space: Space
    name: str = "x"


def complaints(space: Any, **others: Any) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Spec.model_validate({"space": space, **others})
    return [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()]


def said(space: Space, params: dict[str, Any]) -> list[str]:
    return [str(mistake) for mistake in space.mistakes_in(params)]


@pytest.mark.parametrize(
    ("parameter", "complaint"),
    [
        ({"type": "float", "low": 0, "high": 1, "log": True}, "p.low: must be > 0 when log is true"),
        ({"type": "int", "low": 0, "high": 9, "log": True}, "p.low: must be >= 1 when log is true"),
        ({"type": "float", "low": 2, "high": 1}, "p.low: must be <= high, which is 1"),
        ({"type": "int", "low": 2, "high": 1}, "p.low: must be <= high, which is 1"),
        ({"type": "float", "low": 1, "high": 2, "log": True, "step": 0.1}, "p.step: cannot be used when log is true"),
        ({"type": "int", "low": 1, "high": 9, "log": True, "step": 2}, "p.step: must be 1 when log is true"),
        ({"type": "float", "low": 0, "high": 1, "step": 0}, "p.step: must be > 0"),
        (
            {"type": "float", "low": 0, "high": 1, "step": 1e-300},
            "p.step: is too small: the range has more steps than a float can count",
        ),
        ({"type": "int", "low": 0, "high": 1, "step": -1}, "p.step: must be >= 1"),
        ({"type": "float", "low": -1e308, "high": 1e308}, "p.high: the range is wider than the largest float"),
        ({"type": "float", "low": 0, "high": 5e-324}, "p.high: the range is too narrow: a float cannot divide it"),
        ({"type": "float", "low": 0, "high": float("inf")}, "p.high: Input should be a finite number"),
        ({"type": "float", "low": True, "high": 2}, "p.low: must be a number, not true or false"),
        ({"type": "int", "low": 0, "high": 2**53 + 2}, f"p.high: Input should be less than or equal to {2**53}"),
        ({"type": "float", "high": 2}, "p.low: is required"),
        ({"type": "float", "low": 1, "high": 2, "lower": 1}, "p.lower: unknown field"),
        ({"type": "categorical", "choices": []}, "p.choices: must have at least one choice"),
        ({"type": "categorical", "choices": ["a", "b", "a"]}, 'p.choices.2: "a" appears twice'),
        ({"type": "categorical", "choices": [1, 1.0]}, "p.choices.1: 1.0 appears twice"),
        (
            {"type": "categorical", "choices": [[1]]},
            "p.choices.0: must be a string, a number, true, false or null",
        ),
        ({"low": 1, "high": 2}, "p.type: is required: one of float, int, categorical"),
        ({"type": "real"}, "p.type: must be one of 'float', 'int', 'categorical', not 'real'"),
        ({**FLAT, "when": {"q": 1}}, "p.when.q: unknown parameter; the space has p"),
        ({**FLAT, "when": {"p": 1}}, "p.when: a parameter cannot depend on itself: p -> p"),
    ],
)
def test_a_mistake_in_a_parameter_is_reported_with_its_path_and_what_would_be_right(
    parameter: dict[str, Any], complaint: str
) -> None:
    assert f"space.{complaint}" in complaints({"p": parameter})


def test_all_mistakes_are_reported_together() -> None:
    space = {
        "a": {"type": "float", "low": 0, "high": -1, "log": True, "colour": "red", "when": {"nobody": 1}},
        "b": {"type": "int", "low": "x", "high": 3},
        "c": {"type": "categorical", "choices": ["s", "s"], "when": {"d": 1}},
        "d": {**FLAT, "when": {"c": "s"}},
        "e": {**FLAT, "when": {"f": "t", "d": 0.5}},
        "f": {"type": "categorical", "choices": ["s"]},
    }
    reported = complaints(space, name=1)
    assert [line.split(":")[0] for line in reported] == [
        "space.a.colour",
        "space.a.low",
        "space.a.low",
        "space.b.low",
        "space.c.choices.1",
        "space.a.when.nobody",
        "space.c.when",
        "space.d.when",
        "space.e.when.f",
        "space.e.when.d",
        "name",
    ]
    assert 'space.e.when.f: must be one of "s", not "t"' in reported
    assert any(line == "space.e.when.d: d is continuous; its conditions need a range: {min, max}" for line in reported)
    assert "space.c.when: a parameter cannot depend on itself: c -> d -> c" in reported


def test_a_space_needs_a_parameter_and_a_parameter_needs_a_name() -> None:
    assert complaints({}) == ["space: must have at least one parameter"]
    assert complaints({" ": FLAT}) == ["space. : a parameter needs a name"]
    assert complaints([FLAT]) == ["space: Input should be a valid dictionary"]


def test_a_range_that_its_step_does_not_divide_ends_at_the_last_step() -> None:
    space = Space.model_validate({"p": {"type": "float", "low": 0, "high": 1, "step": 0.3}})
    assert list(space.root["p"].values() or ()) == [0.0, 0.3, 0.6, 0.9]
    assert said(space, {"p": 1.0}) == ["p: must be 0 plus a multiple of 0.3, not 1"]
    assert said(space, {"p": 0.1 + 0.2 + 0.3}) == []


def test_a_configuration_of_the_space_has_no_mistakes() -> None:
    space = Space.model_validate(DIGITS)
    assert said(space, GOOD) == []
    assert said(space, {"lr": 1, "hidden": 64, "optimizer": "adamw"}) == []


@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        ({"lr": 2}, ["lr: must be between 0.0001 and 1, not 2"]),
        ({"lr": "fast"}, ['lr: must be a number, not "fast"']),
        ({"lr": True}, ["lr: must be a number, not true"]),
        ({"hidden": 65}, ["hidden: must be 16 plus a multiple of 16, not 65"]),
        ({"hidden": 64.0}, ["hidden: must be an integer, not 64.0"]),
        ({"hidden": 8}, ["hidden: must be between 16 and 256, not 8"]),
        ({"optimizer": "adamw"}, ['momentum: exists only when optimizer is "sgd"; leave it out']),
        ({"optimizer": "adam"}, ['optimizer: must be one of "sgd", "adamw", not "adam"']),
        ({"depth": 3}, ["depth: unknown parameter; the space has lr, hidden, optimizer, momentum"]),
        ({"lr": float("nan"), "hidden": None}, ["lr: must be between", "hidden: must be an integer, not null"]),
    ],
)
def test_params_outside_of_the_space_are_reported(change: dict[str, Any], complaints: list[str]) -> None:
    reported = said(Space.model_validate(DIGITS), {**GOOD, **change})
    assert len(reported) == len(complaints)
    assert all(line.startswith(complaint) for line, complaint in zip(reported, complaints, strict=True))


def test_a_missing_parameter_is_reported_unless_its_parent_has_a_mistake() -> None:
    space = Space.model_validate(DIGITS)
    assert said(space, {"lr": 0.1, "hidden": 16, "optimizer": "sgd"}) == ["momentum: is missing"]
    assert said(space, {"lr": 0.1, "hidden": 16}) == ["optimizer: is missing"]


def test_true_and_1_are_different_choices() -> None:
    on = {"type": "categorical", "choices": [1, True]}
    space = Space.model_validate({"on": on, "only_true": {**FLAT, "when": {"on": True}}})
    assert space.active({"on": True}) == ("on", "only_true")
    assert space.active({"on": 1}) == ("on",)
    assert said(space, {"on": 1, "only_true": 0}) == ["only_true: exists only when on is true; leave it out"]


def test_a_parameter_exists_only_if_its_whole_ancestry_does() -> None:
    kind = {"type": "categorical", "choices": ["x", "y"]}
    space = Space.model_validate(
        {"c": {**FLAT, "when": {"b": ["x", "y"]}}, "a": kind, "b": {**kind, "when": {"a": "x"}}}
    )
    assert space.active({"a": "x", "b": "y", "c": 0}) == ("c", "a", "b")
    assert space.active({"a": "y", "b": "y", "c": 0}) == ("a",)


def test_a_space_with_a_continuous_parameter_has_no_size() -> None:
    assert Space.model_validate(DIGITS).size() is None


def test_a_large_space_is_counted_and_indexed_without_being_enumerated() -> None:
    wide = {"type": "int", "low": 1, "high": 10**9}
    space = Space.model_validate({"n": wide, "m": wide, "k": {**wide, "when": {"n": 7}}})
    assert space.size() == (10**9 - 1) * 10**9 + 10**18
    assert said(space, space.configurations[10**18 + 12345]) == []


@given(data=st.data())
def test_a_finite_space_indexes_each_of_its_configurations_once(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.forbidden(data.draw(draws.spaces(finite=True))))
    axes = {name: parameter.values() or () for name, parameter in space.root.items()}
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    drawn = [space.draw(lambda name, _, point=point: point[name]) for point in points]
    by_hand = {repr(params) for params in drawn if space.forbids(params) is None}
    assert space.size() == space.configurations.size == len(by_hand)
    assert {repr(space.configurations[index]) for index in range(len(by_hand))} == by_hand


@given(data=st.data())
def test_a_space_survives_json(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.spaces())
    assert Space.model_validate_json(space.model_dump_json()) == space


@given(data=st.data())
def test_a_drawn_configuration_belongs_to_the_space_and_without_a_parameter_it_does_not(
    data: st.DataObject, draws: Any
) -> None:
    space = data.draw(draws.spaces())
    params = data.draw(draws.configurations(space))
    assert said(space, params) == []
    assert space.active(params) == tuple(params)
    lost = data.draw(st.sampled_from(sorted(params)))
    assert f"{lost}: is missing" in said(space, {name: params[name] for name in params if name != lost})


@given(data=st.data())
def test_nearby_replaces_a_forbidden_configuration_and_keeps_an_allowed_one(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.spaces())
    anything = data.draw(draws.configurations(space))
    smaller = data.draw(draws.forbidden(space))
    chance = data.draw(st.sampled_from([0.0, 0.3, 0.999999]))
    near = smaller.configurations.nearby(anything, lambda: chance)
    assert said(smaller, near) == []
    assert smaller.forbids(anything) is not None or near == anything


def test_nearby_draws_from_the_whole_of_the_widest_logarithmic_range() -> None:
    space = Space.model_validate({"x": {"type": "float", "low": 1e-300, "high": 1e300, "log": True}})
    configurations = space.without([{"x": Range(min=1e100)}]).configurations
    randoms = [np.random.default_rng(seed).random for seed in range(40)]
    drawn = sorted(cast("float", configurations.nearby({"x": 1e200}, random)["x"]) for random in randoms)
    assert drawn[0] < 1e-250
    assert 1e50 < drawn[-1] < 1e100
    assert len(set(drawn)) == 40


@given(data=st.data())
def test_dead_branches_are_those_that_no_configuration_has(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.forbidden(data.draw(draws.spaces(finite=True))))
    everything = [space.configurations[index] for index in range(space.configurations.size)]
    reported = [str(mistake) for mistake in dead_branches(space)]
    for name, parameter in space.root.items():
        alive = [
            value
            for value in parameter.values() or ()
            if any(same(value, one[name]) for one in everything if name in one)
        ]
        assert (f"space.{name}: can never exist" in reported) == (not alive)
        never = any(line.startswith(f"space.{name}: is never") for line in reported)
        assert never == (0 < len(alive) < len(parameter.values() or ()))
    for index in range(len(space.forbidden)):
        others = space.without([entry for place, entry in enumerate(space.forbidden) if place != index])
        if f"forbid.{index}: forbids no possible configuration" in reported:
            assert others.size() == space.size()


SGD: dict[str, dict[str, Any]] = {
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "layers": {"type": "int", "low": 1, "high": 8},
    "skip": {"type": "categorical", "choices": [True, False], "when": {"layers": {"min": 4}, "lr": {"max": 0.1}}},
}


def test_a_parameter_may_exist_under_ranges_of_its_parents() -> None:
    space = Space.model_validate(SGD)
    base: Params = {"optimizer": "sgd", "lr": 0.1, "layers": 4}
    assert space.active({**base, "skip": True}) == ("optimizer", "lr", "layers", "skip")
    assert said(space, {**base, "lr": 0.2, "skip": True}) == [
        "skip: exists only when layers is at least 4 and lr is at most 0.1; leave it out"
    ]
    assert complaints({**SGD, "skip": {**SGD["skip"], "when": {"layers": {"min": 9}, "lr": {"min": 1, "max": 0}}}}) == [
        "space.skip.when.lr.min: must be <= max, which is 0"
    ]
    assert complaints({**SGD, "skip": {**SGD["skip"], "when": {"layers": {"min": 9}, "lr": {}}}}) == [
        "space.skip.when.lr: needs min, max or both"
    ]
    assert complaints({**SGD, "skip": {**SGD["skip"], "when": {"layers": {"min": 9}, "optimizer": {"max": 1}}}}) == [
        "space.skip.when.layers: no value of layers is at least 9",
        "space.skip.when.optimizer: no value of optimizer is at most 1",
    ]


def forbidding(*entries: Any) -> Space:
    return Space.model_validate(SGD).without(TypeAdapter(Forbidden).validate_python(list(entries)))


def test_a_forbidden_configuration_is_reported_with_the_conditions() -> None:
    space = forbidding({"layers": [7, 8]}, {"optimizer": "sgd", "lr": {"min": 0.5}})
    assert said(space, {"optimizer": "sgd", "lr": 0.6, "layers": 2}) == [
        'is forbidden: optimizer is "sgd" and lr is at least 0.5'
    ]
    assert said(space, {"optimizer": "adamw", "lr": 0.6, "layers": 7}) == ["is forbidden: layers is 7 or 8"]
    assert said(space, {"optimizer": "adamw", "lr": 0.6, "layers": 2}) == []


@pytest.mark.parametrize(
    ("entries", "reported"),
    [
        ([{}], ["0: must name at least one parameter"]),
        ([{"lr": 0.5}], ["0.lr: lr is continuous; its conditions need a range: {min, max}"]),
        (
            [{"layers": 2}, {"depth": 1, "layers": 9}],
            [
                "1.depth: unknown parameter; the space has optimizer, lr, layers, skip",
                "1.layers: must be between 1 and 8, not 9",
            ],
        ),
        ([{"lr": {"max": 0.3}}, {"lr": {"min": 0.2}}], ["every configuration is forbidden"]),
    ],
)
def test_a_mistake_in_forbid_is_reported_with_its_path(entries: list[Any], reported: list[str]) -> None:
    assert [str(mistake) for mistake in mistakes_in_forbidden(forbidding(*entries))] == reported


def test_a_narrowed_space_keeps_the_entries_that_can_still_be_met() -> None:
    narrow = Space.model_validate(
        {"lr": {"type": "float", "low": 0.1, "high": 0.2}, "layers": {"type": "int", "low": 1, "high": 2}}
    )
    entries = [{"optimizer": "sgd"}, {"lr": {"min": 0.5}}, {"lr": {"max": 0.15}, "layers": [2, 3]}, {"layers": 5}]
    assert still_possible(entries, narrow) == [{"lr": {"min": None, "max": 0.15}, "layers": [2]}]


@pytest.mark.slow
def test_too_many_dependent_parameters_are_refused_instead_of_counted() -> None:
    on = {"type": "categorical", "choices": [0, 1]}
    names = [f"p{index}" for index in range(24)]
    late = {f"q{name}": {**on, "when": {name: 1}} for name in names}
    space = Space.model_validate({**dict.fromkeys(names, on), **late})
    assert space.size() is None
    reported = mistakes_in_forbidden(space.without([{"qp0": (1,)}]))
    assert [str(mistake) for mistake in reported] == [
        "too many parameters depend on each other to compute the configurations"
    ]


@pytest.mark.slow
def test_conditions_may_be_deep_and_share_ancestors() -> None:
    chain = {
        f"p{n}": {"type": "int", "low": 0, "high": 1, "when": {f"p{n + 1}": 1} if n < 1200 else {}} for n in range(1201)
    }
    assert Space.model_validate(chain).size() == 1202
    # With two parents each there are too many paths upwards to follow them all.
    lattice = {
        f"p{n}": {"type": "int", "low": 0, "high": 1, "when": {f"p{up}": 1 for up in (n - 1, n - 2) if up >= 0}}
        for n in range(100)
    }
    assert Space.model_validate(lattice).size() == 101


def test_thousands_of_choices_are_distinguished() -> None:
    several = {"type": "categorical", "choices": [*range(20_000), True, False, "1", None]}
    assert Space.model_validate({"p": several}).size() == 20_004
    with pytest.raises(ValidationError, match=r"19999.0 appears twice"):
        Space.model_validate({"p": {**several, "choices": [*several["choices"], 19999.0]}})


def choices(count: int) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(range(count))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "forbidden"),
    [
        (
            {f"p{i}": choices(9) for i in range(40)},
            [{f"p{i % 40}": i % 9, f"p{(7 * i + 1) % 40}": i // 9 % 9, f"p{(3 * i + 2) % 40}": 1} for i in range(2500)],
        ),
        ({"n": {"type": "int", "low": 0, "high": 10**6}}, [{"n": 7 * i} for i in range(6000)]),
        ({"x": {"type": "float", "low": 0, "high": 1e6}}, [{"x": {"min": i, "max": 1e6 - i}} for i in range(2500)]),
        ({"c": choices(5000)}, [{"c": i} for i in range(4999)]),
    ],
    ids=["many entangled", "single integers", "nested ranges", "single choices"],
)
def test_a_space_of_many_combinations_is_checked_in_bounded_time(
    parameters: dict[str, Any], forbidden: list[dict[str, Any]]
) -> None:
    """Each of these fits a document of 90 KB, which the service reads in its own process."""
    space = Space.model_validate(parameters).without(TypeAdapter(Forbidden).validate_python(forbidden))

    def seconds() -> float:
        started = time.thread_time()
        list(mistakes_in_forbidden(space))
        return time.thread_time() - started

    assert any(seconds() < 4 for _ in range(3)), "also where other processes slow one of the tries down"


def test_conditions_and_forbidden_combinations_know_values_despite_rounding() -> None:
    stepped = {"type": "float", "low": 0.0, "high": 0.5, "step": 0.1}
    child = {"type": "int", "low": 1, "high": 3, "when": {"a": 0.1 + 0.2}}
    space = Space.model_validate({"a": stepped, "b": child})
    assert space.size() == 8
    assert space.mistakes_in({"a": 0.3, "b": 2}) == []
    assert space.mistakes_in({"a": 0.2, "b": 2})
    less = Space.model_validate({"a": stepped}).without([{"a": (0.1 + 0.2,)}])
    assert less.size() == 5
    assert less.mistakes_in({"a": 0.3})
