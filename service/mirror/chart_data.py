"""What the pictures of an experiment show: its finished trials, thinned out to what an eye can tell apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from search.problem import Direction

MOST_TRIALS = 2000
MOST_CURVES = 40
MOST_POINTS = 300


class Finished(BaseModel):
    """A trial that has completed or was stopped. `values` are there once all objectives are known."""

    number: int
    completed: bool
    params: dict[str, Any]
    values: list[float] | None
    violation: float | None
    curve: list[tuple[int, float]] = []
    stopped_early: bool = False


class Sketch(BaseModel):
    """`curve_metric` is what the trials' curves are of; `constrained` says whether trials can be infeasible."""

    space: dict[str, Any]
    metrics: list[str]
    directions: list[Direction]
    curve_metric: str
    constrained: bool
    trials: list[Finished]


def thinned(numbers: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly spread, the last one always."""
    stride = max(1, -(-len(numbers) // most))
    return list(reversed(numbers[::-1][::stride]))


def thinned_curve(curve: Mapping[int, float]) -> list[tuple[int, float]]:
    return [(step, curve[step]) for step in thinned(sorted(curve), MOST_POINTS)]
