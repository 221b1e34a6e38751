"""A narrowed space is a part of the one before."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from search.space.narrowed_space import inside, mistakes_in_narrowing, without_dead_branches
from search.space.space import Space
from tests.conftest import examples


def changed(draw: st.DrawFn, item: dict[str, Any]) -> dict[str, Any]:
    """The parameter with other bounds, narrower or wider, or with other choices."""
    if item["type"] == "categorical":
        kept = draw(st.lists(st.sampled_from(item["choices"]), min_size=1, unique_by=repr))
        return item | {"choices": kept + draw(st.sampled_from([[], ["another"]]))}
    moves = st.integers(-1, 2) if item["type"] == "int" or item["step"] is None else st.sampled_from([0, item["step"]])
    return item | {"low": item["low"] + draw(moves), "high": item["high"] - draw(moves)}


@examples(150)
@given(data=st.data())
def test_every_configuration_of_an_allowed_space_belongs_to_the_previous_one(data: st.DataObject, draws: Any) -> None:
    before = data.draw(draws.spaces())
    written = before.model_dump(mode="json")

    @st.composite
    def changes(draw: st.DrawFn) -> dict[str, Any]:
        return {name: changed(draw, item) if draw(st.booleans()) else item for name, item in written.items()}

    try:
        after = Space.model_validate(without_dead_branches(data.draw(changes())))
    except ValidationError:
        assume(False)
        raise
    params = data.draw(draws.configurations(after))
    if mistakes_in_narrowing(before, after):
        assert after != before
    else:
        assert before.mistakes_in(params) == []
        assert inside(before, params)


@given(data=st.data())
def test_a_space_is_a_part_of_itself(data: st.DataObject, draws: Any) -> None:
    space = data.draw(draws.spaces())
    assert mistakes_in_narrowing(space, space) == []
    assert Space.model_validate(without_dead_branches(space.model_dump(mode="json"))) == space


@pytest.mark.parametrize(("choices", "left"), [(["a"], {"x", "y"}), (["b"], {"x", "z"}), (["a", "b"], {"x", "y", "z"})])
def test_parameters_that_can_no_longer_exist_are_removed_with_those_that_depend_on_them(
    choices: list[str], left: set[str]
) -> None:
    space = {
        "x": {"type": "categorical", "choices": choices},
        "y": {"type": "int", "low": 0, "high": 1, "when": {"x": ["a"]}},
        "z": {"type": "int", "low": 0, "high": 1, "when": {"x": ["b"]}},
    }
    assert set(without_dead_branches(space)) == left
    deeper = {**space, "w": {"type": "int", "low": 0, "high": 1, "when": {"z": 1}}}
    assert set(without_dead_branches(deeper)) == left | ({"w"} if "z" in left else set())


def test_an_invalid_space_is_returned_unchanged() -> None:
    wrong = {"x": {"type": "int", "low": 1, "high": 0}}
    assert without_dead_branches(wrong) == wrong
