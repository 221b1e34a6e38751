"""The space as a Gaussian process of Optuna's sees it: a number with many values is continuous there.

Optuna optimizes a continuous parameter by gradients, for all starting points at once, and any other one by a line
search of its own from each point. With three integers of a thousand values that takes ten times as long, and finds
nothing better: docs/reference/performance.md.
"""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

MAX_DISCRETE = 16
"""Of so few values Optuna compares all with each other."""


def without_steps(space: Mapping[str, BaseDistribution]) -> dict[str, BaseDistribution]:
    """A number has the same place between 0 and 1 as Optuna gives it: its range is half a step wider on each side."""
    return {name: _without_step(one) for name, one in space.items()}


def on_steps(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `without_steps(space)` as values of the space."""
    return {name: _nearest(space[name], value) for name, value in params.items()}


def _without_step(one: BaseDistribution) -> BaseDistribution:
    if not isinstance(one, FloatDistribution | IntDistribution) or not one.step:
        return one
    if (one.high - one.low) / one.step < MAX_DISCRETE:
        return one
    return FloatDistribution(one.low - one.step / 2, one.high + one.step / 2, log=one.log)


def _nearest(one: BaseDistribution, value: Any) -> Any:
    if not isinstance(one, FloatDistribution | IntDistribution) or not one.step:
        return value
    count = round((min(max(value, one.low), one.high) - one.low) / one.step)
    return min(one.low + count * one.step, one.high)
