"""Conditions on the value of a parameter: some values, or a range of them."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema, WrapValidator, model_validator

from search.json_types import JsonModel
from search.mistakes import UNKNOWN, Mistake, listed, refuse
from search.space.scalars import Scalar, same, shown

Bound = Annotated[float, Field(allow_inf_nan=False)]

ROUNDING = 1e-12
"""How far floats may be apart, as a share of the larger one, and still count as the same."""


class Range(JsonModel):
    """Numbers from `min` to `max`, both included; one of the two may be missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: Bound | None = None
    """the smallest value that meets the condition"""
    max: Bound | None = None
    """the largest value that meets the condition"""

    @model_validator(mode="after")
    def _has_a_valid_bound(self) -> Self:
        if self.min is None and self.max is None:
            refuse("Range", [Mistake((), "needs min, max or both")], {})
        if self.min is not None and self.max is not None and self.min > self.max:
            refuse("Range", [Mistake(("min",), f"must be <= max, which is {self.max:g}")], {})
        return self

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        if self.min is None:
            return f"at most {self.max:g}"
        return f"at least {self.min:g}" if self.max is None else f"from {self.min:g} to {self.max:g}"


_VALUES: TypeAdapter[tuple[Scalar, ...]] = TypeAdapter(Annotated[tuple[Scalar, ...], Field(min_length=1)])


def _parsed_condition(given: Any, _: Any) -> Range | tuple[Scalar, ...]:
    if isinstance(given, Mapping):
        known = Range.model_fields
        unknown = [
            Mistake((str(name),), f"{UNKNOWN}; known here: {listed(known)}") for name in given if name not in known
        ]
        refuse("Range", unknown, given)
    if isinstance(given, Range | Mapping):
        return Range.model_validate(given)
    return _VALUES.validate_python(given if isinstance(given, list | tuple) else (given,))


_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_BOUNDS = {"min": {"type": "number"}, "max": {"type": "number"}}
Condition = Annotated[
    Range | tuple[Scalar, ...],
    WrapValidator(_parsed_condition),
    WithJsonSchema(
        {
            "anyOf": [
                _SCALAR,
                {"type": "array", "items": _SCALAR, "minItems": 1},
                {"type": "object", "properties": _BOUNDS, "additionalProperties": False, "minProperties": 1},
            ],
            "description": "a value, a list of values, or a range of numbers: {min, max}",
        }
    ),
]


def meets(condition: Range | tuple[Scalar, ...], value: Any) -> bool:
    """A float meets a listed one that differs only by rounding: 0.30000000000000004 is 0.3."""
    if isinstance(condition, Range):
        return value in condition
    return any(same(value, one) or differ_by_rounding(value, one) for one in condition)


def differ_by_rounding(value: Any, one: Scalar) -> bool:
    return isinstance(value, float) and isinstance(one, float) and math.isclose(value, one, rel_tol=ROUNDING)


def in_words(conditions: Mapping[str, Range | tuple[Scalar, ...]]) -> str:
    """A part of a sentence: `optimizer is "sgd" and lr is at least 0.5`."""
    return " and ".join(f"{name} is {_condition_in_words(condition)}" for name, condition in conditions.items())


def _condition_in_words(condition: Range | Iterable[Scalar]) -> str:
    return str(condition) if isinstance(condition, Range) else " or ".join(map(shown, condition))
