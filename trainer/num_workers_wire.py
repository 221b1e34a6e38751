"""The part of `trainer.wire` that says how many workers a group has: a number, or an elastic range."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, WrapValidator, model_validator

from trainer.wire_types import Message, WorldSize

PAIR = 2


class WorkerRange(Message):
    """The fewest and the most workers of an elastic group."""

    min: WorldSize
    """with fewer, the trial waits"""
    max: WorldSize
    """it never has more"""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min must not be more than max ({self.max}): write {{min: {self.max}, max: {self.min}}}")
        return self


_NUMBER: TypeAdapter[int] = TypeAdapter(WorldSize)


def _parsed(given: Any, _: Any) -> int | WorkerRange:
    """One kind of value has one kind of mistake: a plain union would list those of all its members."""
    if isinstance(given, list | tuple):
        if len(given) != PAIR:
            raise ValueError("must be a number, or two: [min, max] of an elastic group, as in [1, 4]")
        given = {"min": given[0], "max": given[1]}
    if isinstance(given, Mapping | WorkerRange):
        return WorkerRange.model_validate(given)
    return _NUMBER.validate_python(given)


def _with_pair(schema: dict[str, Any]) -> None:
    item = {"type": "integer", "minimum": 1}
    schema["anyOf"].append({"type": "array", "items": item, "minItems": PAIR, "maxItems": PAIR})


NumWorkers = Annotated[WorldSize | WorkerRange, WrapValidator(_parsed), Field(json_schema_extra=_with_pair)]
