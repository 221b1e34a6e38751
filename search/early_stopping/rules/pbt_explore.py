"""The explore step of PBT (Jaderberg et al., 2017): each parameter is perturbed, resampled or kept."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from search.space.parameters import CategoricalParameter, FloatParameter, IntParameter, Parameter, Steps
from search.space.space import Params, Space

Item = TypeVar("Item")
Random = Callable[[], float]
"""Returns numbers in [0, 1)."""


@dataclass(frozen=True)
class Explore:
    """A parameter is resampled with `resample_probability`, otherwise perturbed.

    A number is multiplied by one of `factors`. A choice becomes the previous or the next one in the order of the spec;
    the first and the last choice may stay. With `names`, other parameters are kept.
    """

    resample_probability: float
    factors: Sequence[float]
    names: Collection[str] | None = None

    def keeps(self, name: str) -> bool:
        return self.names is not None and name not in self.names


def explored(space: Space, params: Params, explore: Explore, random: Random) -> Params:
    """A configuration of the space near `params`, which may be from a wider space.

    It has exactly the parameters that exist under the perturbed parents; a child that `params` lacks is drawn. If it is
    forbidden, an allowed configuration that keeps as many of its values as possible replaces it; or `params`, where
    some of them must be kept.
    """

    def choose(name: str, parameter: Parameter) -> JsonValue:
        if name in params and explore.keeps(name) and not parameter.mistake_in(params[name]):
            return params[name]
        if name not in params or random() < explore.resample_probability:
            return _drawn(parameter, random)
        return _perturbed(parameter, params[name], explore.factors, random)

    wanted = space.draw(choose)
    if space.forbids(wanted) is None:
        return wanted
    if explore.names is not None and not space.mistakes_in(params):
        return params
    return space.configurations.nearby(wanted, random)


def _drawn(parameter: Parameter, random: Random) -> JsonValue:
    values = parameter.values()
    if isinstance(parameter, CategoricalParameter) or not parameter.log:
        if values is not None:
            return _one_of(values, random)
        assert isinstance(parameter, FloatParameter)  # noqa: S101 (the only kind with infinitely many values)
        return _within(parameter, parameter.low + random() * (parameter.high - parameter.low))
    if isinstance(parameter, FloatParameter):
        return _within(parameter, _between_logs(parameter.low, parameter.high, random))
    # Each integer has the share of the logarithmic scale that rounds to it.
    drawn = _between_logs(parameter.low - 0.5, parameter.high + 0.5, random)
    return parameter.values()[_nearest(parameter, drawn)]


def _perturbed(parameter: Parameter, value: JsonValue, factors: Sequence[float], random: Random) -> JsonValue:
    if isinstance(parameter, CategoricalParameter):
        index = parameter.position(value)
        if index is None:
            return _drawn(parameter, random)
        index += _one_of((-1, 1), random)
        return parameter.choices[min(max(index, 0), len(parameter.choices) - 1)]
    assert isinstance(value, int | float)  # noqa: S101 (of a configuration)
    factor = _one_of(factors, random)
    values = parameter.values()
    if isinstance(parameter, FloatParameter) and not isinstance(values, Steps):
        return _within(parameter, value * factor)
    return _moved(parameter, value, factor)


def _moved(parameter: FloatParameter | IntParameter, value: float, factor: float) -> JsonValue:
    """The value nearest to the product, but at least one step towards it; otherwise small integers would not change.

    A factor above 1 moves 0 up, and one below 1 down.
    """
    values = parameter.values()
    assert values is not None  # noqa: S101 (it has steps)
    before, after = _nearest(parameter, value), _nearest(parameter, value * factor)
    if before == after and factor != 1:
        is_up = (factor > 1) == (value >= 0)
        after = min(max(before + (1 if is_up else -1), 0), len(values) - 1)
    return values[after]


def _nearest(parameter: FloatParameter | IntParameter, target: float) -> int:
    """The index of the value nearest to the target, of a parameter with steps."""
    values = parameter.values()
    assert values is not None and parameter.step  # noqa: PT018, S101 (it has steps)
    within = min(max(target, parameter.low), parameter.high)
    return min(max(round((within - parameter.low) / parameter.step), 0), len(values) - 1)


def _within(parameter: FloatParameter, value: float) -> float:
    return min(max(value, parameter.low), parameter.high)


def _between_logs(low: float, high: float, random: Random) -> float:
    return math.exp(math.log(low) + random() * (math.log(high) - math.log(low)))


def _one_of(values: Sequence[Item], random: Random) -> Item:
    return values[int(random() * len(values))]
