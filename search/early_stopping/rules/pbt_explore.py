"""Exploring around a configuration (Jaderberg et al., 2017): each parameter is perturbed, or drawn anew."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter, Steps, position
from search.space.space import Params, Space

Item = TypeVar("Item")
Chance = Callable[[], float]
"""Gives numbers from 0 to below 1."""


@dataclass(frozen=True)
class Exploring:
    """A parameter is drawn anew with `resample_probability`, else perturbed.

    A number is multiplied by one of `factors`. A choice becomes the one before or after, as they are written, or stays
    at either end.
    """

    resample_probability: float
    factors: Sequence[float]


def explored(space: Space, params: Params, how: Exploring, chance: Chance) -> Params:
    """A configuration of the space near to `params`, which may have been one of a wider space.

    What exists under the perturbed parents is there, and nothing else: a child that `params` lacks is drawn. Of one
    that turns out to be forbidden as much is kept as can be. The same chance gives the same.
    """

    def choose(name: str, parameter: Parameter) -> JsonValue:
        if name not in params or chance() < how.resample_probability:
            return _drawn(parameter, chance)
        return _perturbed(parameter, params[name], how.factors, chance)

    wanted = space.draw(choose)
    return wanted if space.forbids(wanted) is None else space.configurations.nearby(wanted, chance)


def _drawn(parameter: Parameter, chance: Chance) -> JsonValue:
    values = parameter.values()
    if isinstance(parameter, CategoricalParameter) or not parameter.log:
        if values is not None:
            return _one_of(values, chance)
        assert isinstance(parameter, FloatParameter)  # noqa: S101 (the only kind without end)
        return _within(parameter, parameter.low + chance() * (parameter.high - parameter.low))
    if isinstance(parameter, FloatParameter):
        return _within(parameter, _between_logs(parameter.low, parameter.high, chance))
    # Each integer has the share of the logarithmic scale that rounds to it.
    drawn = _between_logs(parameter.low - 0.5, parameter.high + 0.5, chance)
    return parameter.values()[_nearest(parameter, drawn)]


def _perturbed(parameter: Parameter, value: JsonValue, factors: Sequence[float], chance: Chance) -> JsonValue:
    if isinstance(parameter, CategoricalParameter):
        place = position(parameter.choices, value)
        if place is None:
            return _drawn(parameter, chance)
        place += _one_of((-1, 1), chance)
        return parameter.choices[min(max(place, 0), len(parameter.choices) - 1)]
    assert isinstance(value, int | float)  # noqa: S101 (of a configuration)
    target = value * _one_of(factors, chance)
    values = parameter.values()
    if isinstance(parameter, FloatParameter) and not isinstance(values, Steps):
        return _within(parameter, target)
    return _moved(parameter, value, target)


def _moved(parameter: FloatParameter | IntParameter, value: float, target: float) -> JsonValue:
    """The value nearest to the target, and at least the next one in its direction: else small integers never moved."""
    values = parameter.values()
    assert values is not None  # noqa: S101 (it has steps)
    before, after = _nearest(parameter, value), _nearest(parameter, target)
    if before == after and target != value:
        after = min(max(before + (1 if target > value else -1), 0), len(values) - 1)
    return values[after]


def _nearest(parameter: FloatParameter | IntParameter, target: float) -> int:
    """The position, among the values of a parameter with steps, of the one that comes nearest to the target."""
    values = parameter.values()
    assert values is not None and parameter.step  # noqa: PT018, S101 (it has steps)
    within = min(max(target, parameter.low), parameter.high)
    return min(max(round((within - parameter.low) / parameter.step), 0), len(values) - 1)


def _within(parameter: FloatParameter, value: float) -> float:
    return min(max(value, parameter.low), parameter.high)


def _between_logs(low: float, high: float, chance: Chance) -> float:
    return math.exp(math.log(low) + chance() * (math.log(high) - math.log(low)))


def _one_of(values: Sequence[Item], chance: Chance) -> Item:
    return values[int(chance() * len(values))]
