"""A parameter's numbers as positions from 0 to 1 on its own scale, on which distances are compared."""

import math

from pydantic import JsonValue

from search.space.log_interpolation import interpolate_log
from search.space.parameters import FloatParameter, IntParameter

NumberParameter = FloatParameter | IntParameter


def to_unit(parameter: NumberParameter, value: float) -> float:
    """Where the value is; of a finite parameter's values each has an equal part of the way, or of its logarithm."""
    low, high = _ends(parameter)
    value = min(max(value, low), high)
    if parameter.log:
        low, value, high = math.log(low), math.log(value), math.log(high)
    return (value - low) / (high - low) if low < high else 0.5


def from_unit(parameter: NumberParameter, share: float) -> JsonValue:
    """The value at this share of the way, 0 to 1."""
    low, high = _ends(parameter)
    found = interpolate_log(low, high, share) if parameter.log else low + share * (high - low)
    values = parameter.values()
    if values is None:
        return min(max(found, parameter.low), parameter.high)
    step = parameter.step or 1.0
    return values[min(max(round((found - values[0]) / step), 0), len(values) - 1)]


def _ends(parameter: NumberParameter) -> tuple[float, float]:
    """Half a step beyond the first and the last value, so that these are as wide as the others."""
    values = parameter.values()
    if values is None:
        return parameter.low, parameter.high
    half = (parameter.step or 0.0) / 2
    return values[0] - half, values[-1] + half
