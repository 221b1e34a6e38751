"""The range of an elastic group's number of workers, as users write it: `{min: 1, max: 4}` or `[1, 4]`.

On the wire it is two numbers, num_workers and max_workers, so that what expects a number gets one.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, model_validator

from trainer.wire.field_types import Message, WorldSize

PAIR = 2


class WorkerRange(Message):
    """The fewest and the most workers of an elastic group. `[1, 4]` is the same as `{min: 1, max: 4}`."""

    min: WorldSize
    """with fewer, the trial waits"""
    max: WorldSize
    """it never has more"""

    @model_validator(mode="before")
    @classmethod
    def _read_pair(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        if len(given) != PAIR:
            raise ValueError("must be a number, or two: [min, max] of an elastic group, as in [1, 4]")
        return {"min": given[0], "max": given[1]}

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min must not be more than max ({self.max}): write {{min: {self.max}, max: {self.min}}}")
        return self


class _Ranged(BaseModel):
    """A model, so that the paths of mistakes have the field's name."""

    num_workers: WorkerRange


def with_max_workers(scaling: Any) -> Any:
    """A range of num_workers as two fields; anything else as it is. Raises ValidationError."""
    count = scaling.get("num_workers") if isinstance(scaling, Mapping) else None
    if not isinstance(count, Mapping | list | tuple):
        return scaling
    found = _Ranged.model_validate({"num_workers": count}).num_workers
    if scaling.get("max_workers") not in (None, found.max):
        raise ValueError(f"max_workers must be absent: num_workers says it already ({found.max})")
    return {**scaling, "num_workers": found.min, "max_workers": found.max}
