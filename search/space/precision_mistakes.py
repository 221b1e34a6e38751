"""Ranges and steps that are too small beside their numbers: floats, or their logarithms, do not distinguish them."""

from collections.abc import Iterator

from search.mistakes import Mistake
from search.space.parameters import MAX_EXACT, FloatParameter
from search.space.space import Space

MIN_LOG_RATIO = 1 + 1e-9
"""Of the largest value to the smallest. Below it, few floats are between their logarithms, and in the end none."""


def precision_mistakes(space: Space) -> Iterator[Mistake]:
    """Paths start at the experiment's spec. Experiments of earlier versions may have such parameters."""
    for name, parameter in space.root.items():
        if isinstance(parameter, FloatParameter):
            for mistake in _mistakes_in(parameter):
                yield mistake.under("space", name)


def _mistakes_in(parameter: FloatParameter) -> Iterator[Mistake]:
    low, high, step = parameter.low, parameter.high, parameter.step
    if parameter.log and low < high <= low * MIN_LOG_RATIO:
        yield Mistake(("log",), "must be false: a logarithmic scale does not distinguish low and high")
    largest = max(abs(low), abs(high))
    if step is not None and largest / step > MAX_EXACT:
        yield Mistake(("step",), f"is too small: floats do not distinguish steps of {step:g} at {largest:g}")
