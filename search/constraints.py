"""Constraints on metrics: the bounds within which a trial is feasible."""

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from search.json_types import JsonModel
from search.numbers_in_messages import distinct_texts


class Constraint(JsonModel):
    """The newest value of the metric must be at least `min` and at most `max`; at least one of the two is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str = Field(min_length=1)
    """the reported metric that is bounded"""
    max: float | None = Field(default=None, allow_inf_nan=False)
    """the largest feasible value"""
    min: float | None = Field(default=None, allow_inf_nan=False)
    """the smallest feasible value"""

    @model_validator(mode="after")
    def _some_value_is_feasible(self) -> Self:
        if self.max is None and self.min is None:
            raise ValueError("needs a bound: max, min, or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"no value is at least {self.min:g} and at most {self.max:g}")
        return self

    def violation(self, value: float) -> float:
        """The distance of `value` from the bounds, in the unit of the metric; 0 or less within them."""
        above = -float("inf") if self.max is None else value - self.max
        below = -float("inf") if self.min is None else self.min - value
        return max(above, below)

    def broken_by(self, value: float | None) -> str | None:
        """How `value` violates the constraint, in words; None if it does not. A missing value violates it."""
        if value is None:
            return f"{self.metric} was not reported, or was not a finite number"
        if self.max is not None and value > self.max:
            found, bound = distinct_texts(value, self.max)
            return f"{self.metric} {found} is above {bound}"
        if self.min is not None and value < self.min:
            found, bound = distinct_texts(value, self.min)
            return f"{self.metric} {found} is below {bound}"
        return None


def violations(constraints: Sequence[Constraint], values: Mapping[str, float]) -> tuple[float, ...]:
    """One for each constraint; infinite for a metric that was not reported."""
    return tuple(one.violation(values[one.metric]) if one.metric in values else float("inf") for one in constraints)


def total_violation(constraints: Sequence[Constraint], values: Mapping[str, float]) -> float:
    """The sum of the positive violations, by which Optuna's samplers compare trials; 0 if the trial is feasible."""
    return sum(max(0.0, one) for one in violations(constraints, values))
