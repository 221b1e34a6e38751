"""The points of learning curves that a model learns from: the level of the step, and the loss there."""

import math
from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from search.samplers.learning_curve import END, LearningCurve

Array = NDArray[np.float64]

MAX_POINTS = 250
"""The time of a proposal grows with the cube of the points."""
HUGE = float(np.finfo(np.float64).max) / 4

Point = tuple[int, float, float]
"""The index of a trial, a step, and the loss there."""


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
    return sorted([*ranked[:half], *ranked[half :: -(-len(ranked[half:]) // half)]])


def levels(steps: Array, last_step: int) -> Array:
    """From 0 at the first step to 1 at the last one, evenly for each doubling."""
    steps = np.clip(np.where(steps == END, last_step, steps), 1, None)
    first, last = math.log(steps.min()), math.log(max(1, last_step))
    if first == last:
        return np.ones(len(steps))
    return (np.log(steps) - first) / (last - first)


def bounded(losses: Array) -> Array:
    """Of the size of 1. None is further above the median than the least one is below it.

    So losses of trials that diverge, or almost, do not make all others look equal. Only ranks would be as robust. They
    are scaled last: beside one of 1e200 the squares of all others would be 0.
    """
    finite = losses[np.isfinite(losses)]
    if not finite.any():
        return np.zeros(len(losses))
    known = _without_overflow(np.nan_to_num(losses, posinf=finite.max(), neginf=finite.min()))
    middle, least = np.median(known), known.min()
    if middle > least:
        known = np.minimum(known, middle + (middle - least))
    largest = np.abs(known).max()
    return known / largest if largest else known


def _without_overflow(values: Array) -> Array:
    """Smaller by the same factor, if differences of them might not be floats."""
    return values / 4 if np.abs(values).max() > HUGE else values
