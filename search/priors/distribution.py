"""Draws from beliefs about parameters, and how much likelier a configuration is under them than by chance."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from pydantic import JsonValue

from search.space.parameters import CategoricalParameter, Parameter, Params, position
from search.space.prior import Confidence
from search.space.space import Space
from search.space.unit_scale import NumberParameter, from_unit, to_unit

WIDTHS: dict[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""The standard deviation of a number, as a part of its range."""
MASSES: dict[Confidence, float] = {"low": 0.25, "medium": 0.5, "high": 0.75}
"""The probability of a choice; the rest is shared equally by all choices."""


class Around(Protocol):
    """A distribution around one value of a parameter."""

    def draw(self, random: np.random.Generator) -> JsonValue: ...

    def ratio(self, value: Any) -> float:
        """How much likelier the value is than in a uniform distribution."""


@dataclass(frozen=True)
class AroundNumber:
    """A normal distribution, cut off at the ends of the parameter's range. `centre` is a position from 0 to 1."""

    parameter: NumberParameter
    centre: float
    width: float

    def draw(self, random: np.random.Generator) -> JsonValue:
        first, last = self._ends
        share = self._normal.inv_cdf(first + (last - first) * (1 - random.random()))
        return from_unit(self.parameter, min(max(share, 0.0), 1.0))

    def ratio(self, value: Any) -> float:
        first, last = self._ends
        return self._normal.pdf(to_unit(self.parameter, value)) / (last - first)

    @cached_property
    def _normal(self) -> NormalDist:
        return NormalDist(self.centre, self.width)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return self._normal.cdf(0), self._normal.cdf(1)


@dataclass(frozen=True)
class AroundChoice:
    """`mass` is the choice's own probability; the rest is shared equally by all choices."""

    parameter: CategoricalParameter
    index: int
    mass: float

    def draw(self, random: np.random.Generator) -> JsonValue:
        favoured, any_index = random.random() < self.mass, int(random.integers(len(self.parameter.choices)))
        return self.parameter.choices[self.index if favoured else any_index]

    def ratio(self, value: Any) -> float:
        is_it = self.parameter.position(value) == self.index
        return 1 - self.mass + self.mass * len(self.parameter.choices) * is_it


def around(parameter: Parameter, value: Any, width: float, mass: float) -> Around:
    if isinstance(parameter, CategoricalParameter):
        return AroundChoice(parameter, parameter.position(value) or 0, mass)
    return AroundNumber(parameter, to_unit(parameter, value), width)


def uniform(parameter: Parameter, random: np.random.Generator) -> JsonValue:
    if isinstance(parameter, CategoricalParameter):
        return parameter.choices[int(random.integers(len(parameter.choices)))]
    return from_unit(parameter, random.random())


class PriorDistribution:
    """The product of the priors; parameters without one are uniform."""

    def __init__(self, space: Space) -> None:
        self._space = space
        priors = {name: one.prior for name, one in space.root.items() if one.prior is not None}
        self._values = {name: exactly(space.root[name], prior.value) for name, prior in priors.items()}
        self._around = {
            name: around(space.root[name], prior.value, WIDTHS[prior.confidence], MASSES[prior.confidence])
            for name, prior in priors.items()
        }

    def mode(self, random: np.random.Generator) -> Params:
        """The values of the priors, under parents with which most of them exist."""
        drawn = self._space.draw(lambda name, _: self._values[name] if name in self._values else self.one(name, random))
        if self._values.keys() <= drawn.keys() or not self._space.has_known_configurations:
            return drawn
        other = self._space.configurations.with_most_of(self._values, random.random)
        return max(drawn, other, key=lambda params: len(self.believed(params)))

    def draw(self, random: np.random.Generator) -> Params:
        return self._space.draw(lambda name, _: self.one(name, random))

    def one(self, name: str, random: np.random.Generator) -> JsonValue:
        """A value of one parameter."""
        return self._around[name].draw(random) if name in self._around else uniform(self._space.root[name], random)

    def believed(self, params: Mapping[str, JsonValue]) -> Params:
        """The params that have a prior."""
        return {name: value for name, value in params.items() if name in self._around}

    def nearness(self, params: Mapping[str, JsonValue]) -> float:
        """The probability that the params were drawn from here and not uniformly, if both were as likely before."""
        ratio = 1.0
        for name, value in self.believed(params).items():
            ratio *= self._around[name].ratio(value)
        return ratio / (1 + ratio)


def exactly(parameter: Parameter, value: Any) -> JsonValue:
    """The value as the parameter has it: of steps 0.3, not 0.30000000000000004, and of a float's range 1.0, not 1."""
    values = parameter.values()
    index = None if values is None else position(values, value)
    return float(value) if values is None or index is None else values[index]
