"""The points of learning curves that a model learns from: the level of the step, and the loss there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np

from search.samplers.learning_curve import END, LearningCurve
from search.samplers.optuna.gp.curve_divergence import without_divergence
from search.samplers.optuna.gp.losses import Array, Flags

MAX_POINTS = 250
"""The time of a proposal grows with the cube of the points."""

Point = tuple[int, float, float]
"""The index of a trial, a step, and the loss there."""


@dataclass(frozen=True)
class KnownPoints:
    """What a model may learn from; `has_diverged` has an entry for each trial."""

    points: Sequence[Point]
    has_diverged: Flags

    @classmethod
    def of(cls, curves: Sequence[LearningCurve]) -> Self:
        kept, has_diverged = without_divergence(curves)
        return cls([] if has_diverged.all() else points_of(kept), has_diverged)

    @property
    def are_informative(self) -> bool:
        """Whether the losses differ. Of others a model only sees that the corners are far from all trials."""
        return len({loss for _, _, loss in self.points}) > 1


def points_of(curves: Sequence[LearningCurve]) -> list[Point]:
    """At most MAX_POINTS: of long curves the last ones, then the best half and every n-th of the others."""
    for most in count(max(len(curve.losses) for curve in curves), -1):
        points = [
            (index, step, loss)
            for index, curve in enumerate(curves)
            for step, loss in sorted(curve.losses.items())[-most:]
        ]
        if len(points) <= MAX_POINTS or most == 1:
            return _thinned(points)
    raise AssertionError("count() never ends")


def _thinned(points: list[Point]) -> list[Point]:
    if len(points) <= MAX_POINTS:
        return points
    ranked = sorted(points, key=lambda point: (point[2], point[0]))
    half = MAX_POINTS // 2
    return sorted([*ranked[:half], *ranked[half :: stride(len(ranked) - half, half)]])


def stride(count: int, most: int) -> int:
    """The distance between at most `most` of `count` things, so that they are evenly spaced."""
    return max(1, -(-count // most))


def levels(steps: Array, last_step: int) -> Array:
    """From 0 at the first step to 1 at the last one, evenly for each doubling."""
    steps = np.clip(np.where(steps == END, last_step, steps), 1, None)
    first, last = math.log(steps.min()), math.log(max(1, last_step))
    if first == last:
        return np.ones(len(steps))
    return (np.log(steps) - first) / (last - first)
