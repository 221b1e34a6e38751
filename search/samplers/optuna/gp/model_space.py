"""The space as a Gaussian process of Optuna's sees it: a number with many values is continuous there.

Optuna optimizes a continuous parameter by gradients, for all starting points at once, and any other one by a line
search of its own from each point. With three integers of a thousand values that takes ten times as long, and finds
nothing better: docs/reference/performance.md.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from search.samplers.optuna.gp.losses import Array

Number = FloatDistribution | IntDistribution

MAX_DISCRETE = 16
"""Of so few values Optuna compares all with each other."""
MAX_MOVES = 10


def without_steps(space: Mapping[str, BaseDistribution]) -> dict[str, BaseDistribution]:
    """A number has the same place between 0 and 1 as Optuna gives it: its range is half a step wider on each side."""
    return {name: _without_step(one) for name, one in space.items()}


def on_steps(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `without_steps(space)` as values of the space."""
    return {name: nearest_value(space[name], value) for name, value in params.items()}


class ModelSteps:
    """The steps of the numbers that `without_steps` makes continuous, in a space whose parameters have this order."""

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        self._numbers = [(index, one) for index, one in enumerate(space.values()) if _has_many_values(one)]

    def best_near(self, point: Array, acquisition: Callable[[Array], Array]) -> Array:
        """The point on the steps that none beside it surpasses, from the nearest one on.

        `point` has places from 0 to 1, and `acquisition` takes a row for each of several points. The nearest one alone
        would often be a point that has been tried, and of which the model expects nothing.
        """
        if not self._numbers:
            return point
        for index, one in self._numbers:
            point = _with_place(point, index, one, nearest_value(one, _value(one, point[index])))
        best = float(acquisition(point[np.newaxis])[0])
        for _ in range(MAX_MOVES):
            beside = np.array(list(self._beside(point)))
            found = acquisition(beside)
            if found.max() <= best:
                break
            point, best = beside[found.argmax()], float(found.max())
        return point

    def _beside(self, point: Array) -> Iterator[Array]:
        for index, one in self._numbers:
            value = nearest_value(one, _value(one, point[index]))
            for other in (value - step_of(one), value + step_of(one)):
                if one.low <= other <= one.high:
                    yield _with_place(point, index, one, other)


def _with_place(point: Array, index: int, one: Number, value: float) -> Array:
    return np.concatenate([point[:index], [place_of(one, value)], point[index + 1 :]])


def place_of(one: Number, value: float) -> float:
    low, high = _range(one)
    return ((math.log(value) if one.log else value) - low) / (high - low)


def _value(one: Number, place: float) -> float:
    low, high = _range(one)
    value = low + place * (high - low)
    return math.exp(value) if one.log else value


def _range(one: Number) -> tuple[float, float]:
    half = step_of(one) / 2
    low, high = one.low - half, one.high + half
    return (math.log(low), math.log(high)) if one.log else (low, high)


def step_of(one: Number) -> float:
    return one.step or 0


def _has_many_values(one: BaseDistribution) -> TypeGuard[Number]:
    if not isinstance(one, FloatDistribution | IntDistribution) or not one.step:
        return False
    return (one.high - one.low) / one.step >= MAX_DISCRETE


def _without_step(one: BaseDistribution) -> BaseDistribution:
    if not _has_many_values(one):
        return one
    half = step_of(one) / 2
    return FloatDistribution(one.low - half, one.high + half, log=one.log)


def nearest_value(one: BaseDistribution, value: Any) -> Any:
    if not isinstance(one, FloatDistribution | IntDistribution) or not one.step:
        return value
    count = round((min(max(value, one.low), one.high) - one.low) / one.step)
    return min(one.low + count * one.step, one.high)
