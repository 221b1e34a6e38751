"""Constraints on metrics: what a trial must keep within to count."""

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Constraint(BaseModel):
    """A metric's newest value must be at least `min` and at most `max`; one of the two, or both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str = Field(min_length=1)
    max: float | None = Field(default=None, allow_inf_nan=False)
    min: float | None = Field(default=None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _some_value_keeps_it(self) -> Self:
        if self.max is None and self.min is None:
            raise ValueError("needs a bound: max, min, or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"no value is at least {self.min:g} and at most {self.max:g}")
        return self

    def violation(self, value: float) -> float:
        """How far `value` lies outside, in the metric's own unit; 0 or less within."""
        above = -float("inf") if self.max is None else value - self.max
        below = -float("inf") if self.min is None else self.min - value
        return max(above, below)

    def broken_by(self, value: float | None) -> str | None:
        """How `value` breaks it, in words; None when it does not. A value that is not known breaks it."""
        if value is None:
            return f"{self.metric} was not reported"
        if self.max is not None and value > self.max:
            return f"{self.metric} {value:g} is above {self.max:g}"
        if self.min is not None and value < self.min:
            return f"{self.metric} {value:g} is below {self.min:g}"
        return None


def violations(constraints: Sequence[Constraint], values: Mapping[str, float]) -> tuple[float, ...]:
    """One for each constraint; a metric that was not reported is infinitely far outside."""
    return tuple(one.violation(values[one.metric]) if one.metric in values else float("inf") for one in constraints)


def total_violation(constraints: Sequence[Constraint], values: Mapping[str, float]) -> float:
    """0 is feasible. Else the sum of what each constraint is broken by, as Optuna's samplers compare trials."""
    return sum(max(0.0, one) for one in violations(constraints, values))
