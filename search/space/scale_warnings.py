"""Ranges over several orders of magnitude that are searched as if most of their values were in the uppermost one."""

from collections.abc import Iterator

from search.mistakes import Mistake
from search.space.parameters import FloatParameter
from search.space.space import Space

MIN_RATIO = 1000
"""Of the largest value to the smallest, from which on a range is usually meant to be logarithmic, as learning rates."""


def scale_warnings(space: Space) -> Iterator[Mistake]:
    """At paths from the experiment's spec."""
    for name, parameter in space.root.items():
        if not isinstance(parameter, FloatParameter) or parameter.log or parameter.step is not None:
            continue
        if 0 < MIN_RATIO * parameter.low <= parameter.high:
            typical = parameter.low + (parameter.high - parameter.low) / 10
            message = f"is false for {parameter.low:g} to {parameter.high:g}: nine of ten values drawn are above"
            yield Mistake(("space", name, "log"), f"{message} {typical:.2g}; true gives small values the same weight")
