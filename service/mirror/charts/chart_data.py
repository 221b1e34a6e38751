"""The data of an experiment's charts: its ended trials, thinned out to what is visible in a chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from search.problem import Direction

MAX_TRIALS = 2000
MAX_CURVES = 40
MAX_POINTS = 300


class ChartTrial(BaseModel):
    """A trial that has ended or paused. `values` is None unless all objectives are known.

    `score` is its curve score where charts judge trials by it.
    """

    number: int
    completed: bool
    params: dict[str, Any]
    values: list[float] | None
    violation: float | None
    curve: list[tuple[int, float]] = []
    stopped_early: bool = False
    score: float | None = None


class ChartData(BaseModel):
    """`curve_metric` is the metric of the trials' curves; `constrained`: trials can be infeasible.

    `by_score`: early stopping has ended or paused trials, and charts judge trials by their curve scores.
    """

    space: dict[str, Any]
    metrics: list[str]
    directions: list[Direction]
    curve_metric: str
    constrained: bool
    by_score: bool = False
    trials: list[ChartTrial]


def thinned(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the numbers, evenly spread, always with the last one."""
    stride = max(1, -(-len(numbers) // most))
    return list(reversed(numbers[::-1][::stride]))


def thinned_curve(curve: Mapping[int, float]) -> list[tuple[int, float]]:
    return [(step, curve[step]) for step in thinned(sorted(curve), MAX_POINTS)]
