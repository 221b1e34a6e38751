"""Numbers and booleans of the models that users write are JSON's, however often a model is used in others."""

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from search.json_types import JsonModel


class Inner(JsonModel):
    count: Annotated[int, Field(ge=0)] = 0


class Outer(JsonModel):
    share: float | None = None
    several: list[int] | None = None
    named: dict[str, float] | None = None
    pair: tuple[float, ...] = ()
    wanted: bool = False
    inner: Inner = Inner()

    @model_validator(mode="after")
    def _with_a_validator(self) -> "Outer":
        return self


class Heir(Outer):
    more: int = 0


WRONG: list[dict[str, Any]] = [
    {"share": True}, {"share": "1"}, {"several": [True]}, {"several": ["1"]}, {"named": {"a": "1"}}, {"pair": [True]},
    {"wanted": 1}, {"wanted": "true"}, {"inner": {"count": True}}, {"inner": {"count": "1"}}, {"inner": {"count": 1.5}},
]  # fmt: skip


@pytest.mark.parametrize("given", [*WRONG, {"more": True}, {"more": "1"}])
def test_text_and_booleans_are_no_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Heir.model_validate(given)
    if "more" not in given:
        with pytest.raises(ValidationError):
            Outer.model_validate(given)


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    assert Heir.model_validate({"more": 5.0, "inner": {"count": 3.0}}) == Heir(more=5, inner=Inner(count=3))


def test_json_schema_has_the_constraints() -> None:
    assert Inner.model_json_schema()["properties"]["count"]["minimum"] == 0


def test_a_model_is_not_wrapped_again_with_each_use() -> None:
    for _ in range(1000):
        TypeAdapter(list[Inner])
    assert TypeAdapter(list[Inner]).validate_python([{"count": 1}]) == [Inner(count=1)]
    assert str(Inner.__pydantic_core_schema__).count("_a_number") == 1
    assert TypeAdapter(list[Inner]).json_schema()
