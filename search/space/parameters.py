"""The three kinds of parameters, named as Optuna's distributions."""

import math
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, overload

from pydantic import ConfigDict, Field, JsonValue, PrivateAttr, model_validator

from search.json_types import JsonModel
from search.mistakes import Mistake, listed, refuse
from search.numbers_in_messages import distinct_texts
from search.space.conditions import ROUNDING, Condition, Range
from search.space.prior import Prior
from search.space.scalars import Scalar, identity, positions, repetitions, same, shown

MAX_EXACT = 2**53
"""Above it, floats (and so JSON numbers) do not distinguish neighbouring integers."""

Params = dict[str, JsonValue]
"""A configuration: the values of the parameters that exist, by name."""

Number = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-MAX_EXACT, le=MAX_EXACT)]


class ParameterBase(JsonModel):
    """The parameter exists only if all conditions in `when`, which are by the name of a parent parameter, are met."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: dict[str, Condition] = Field(default_factory=dict)
    """the parameter exists only if its parents, by name, meet all of these conditions"""
    prior: Prior | None = None
    """where its good values are expected"""

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        mistakes = list(self._own_mistakes())
        # Of the prior only if the parameter is right otherwise.
        if not mistakes and self.prior is not None and (wrong := self.mistake_in(self.prior.value)):
            mistakes = [Mistake(("prior", "value"), wrong)]
        refuse(type(self).__name__, mistakes, self.model_dump())
        return self

    def _own_mistakes(self) -> Iterator[Mistake]:
        yield from ()

    def mistake_in(self, value: Any) -> str | None:
        """Why it is not a value of the parameter; None if it is one."""
        raise NotImplementedError


class Steps(Sequence[float]):
    """`low`, `low + step`, ... up to `high`, computed in decimal: 0.3, not 0.30000000000000004. Nothing is stored."""

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._step = Decimal(str(low)), Decimal(str(step))
        self._count = int((Decimal(str(high)) - self._low) // self._step) + 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        return float(self._low + range(self._count)[index] * self._step)

    def position(self, value: float) -> int | None:
        """The index of `value`, with a tolerance for the rounding of binary fractions; None if it is not a step."""
        nearest, step = round((Decimal(value) - self._low) / self._step), float(self._step)
        if not 0 <= nearest < self._count:
            return None
        # Sums far from zero are off by more than a share of the step, but not by so much that it could be another one.
        tolerance = max(1e-8 * step, min(ROUNDING * abs(value), step / 4), math.ulp(value))
        return nearest if abs(self[nearest] - value) <= tolerance else None

    def without_rounding(self, value: float) -> float:
        """The step from which `value` differs only by a float's rounding; or else the value."""
        index = self.position(value)
        return float(value) if index is None else self[index]

    def with_bounds_on_steps(self, wanted: Range) -> Range:
        """The range with the bounds as these steps, as values are compared with it."""
        low, high = (None if bound is None else self.without_rounding(bound) for bound in (wanted.min, wanted.max))
        return Range.model_construct(min=low, max=high)


class FloatParameter(ParameterBase):
    """A real number in a range."""

    type: Literal["float"]
    """a real number"""
    low: Number
    """the smallest value"""
    high: Number
    """the largest value"""
    log: bool = False
    """whether it is searched on a logarithmic scale"""
    step: Number | None = None
    """only `low` plus multiples of this are tried"""

    def _own_mistakes(self) -> Iterator[Mistake]:
        yield from _range_mistakes(self.low, self.high, log=self.log, lowest=0, lowest_included=False)
        if not math.isfinite(self.high - self.low):
            yield Mistake(("high",), "the range is wider than the largest float")
        if 0 < self.high - self.low < sys.float_info.min:
            yield Mistake(("high",), "the range is too narrow: a float cannot divide it")
        if self.step is not None:
            yield from self._step_mistakes(self.step)

    def _step_mistakes(self, step: float) -> Iterator[Mistake]:
        if self.log:
            yield Mistake(("step",), "cannot be used when log is true")
        if step <= 0:
            yield Mistake(("step",), "must be > 0")
        elif (self.high - self.low) / step > MAX_EXACT:
            yield Mistake(("step",), "is too small: the range has more steps than a float can count")

    def values(self) -> Sequence[float] | None:
        """All values in order; None if there is no step and more than one value."""
        if self.step is not None:
            return Steps(self.low, self.high, self.step)
        return (self.low,) if self.low == self.high else None

    def mistake_in(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"must be a number, not {shown(value)}"
        if self._is_a_step(value):
            return None
        if not self.low <= value <= self.high:
            low, high, given = distinct_texts(self.low, self.high, value)
            return f"must be between {low} and {high}, not {given}"
        if self.step is not None:
            low, given = distinct_texts(self.low, value)
            return f"must be {low} plus a multiple of {self.step:g}, not {given}"
        return None

    def _is_a_step(self, value: float) -> bool:
        """True for an end of the range, too, that only a float's rounding puts beyond it: 0.1 + 0.2 for 0.3."""
        if self.step is None or not self.low - self.step <= value <= self.high + self.step:
            return False
        return position(Steps(self.low, self.high, self.step), value) is not None


class IntParameter(ParameterBase):
    """A whole number in a range."""

    type: Literal["int"]
    """a whole number"""
    low: Whole
    """the smallest value"""
    high: Whole
    """the largest value"""
    log: bool = False
    """whether it is searched on a logarithmic scale"""
    step: Whole = 1
    """only `low` plus multiples of this are tried"""

    def _own_mistakes(self) -> Iterator[Mistake]:
        yield from _range_mistakes(self.low, self.high, log=self.log, lowest=1, lowest_included=True)
        if self.step < 1:
            yield Mistake(("step",), "must be >= 1")
        elif self.log and self.step != 1:
            yield Mistake(("step",), "must be 1 when log is true")

    def values(self) -> Sequence[int]:
        return range(self.low, self.high + 1, self.step)

    def mistake_in(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be an integer, not {shown(value)}"
        if not self.low <= value <= self.high:
            return f"must be between {self.low} and {self.high}, not {value}"
        if value not in self.values():
            return f"must be {self.low} plus a multiple of {self.step}, not {value}"
        return None


class CategoricalParameter(ParameterBase):
    """One of some values."""

    type: Literal["categorical"]
    """one of some values, without an order"""
    choices: tuple[Scalar, ...]
    """the values"""
    _positions: dict[tuple[bool, Scalar], int] = PrivateAttr(default_factory=dict)

    def model_post_init(self, _: Any) -> None:
        # A cached property would change how pydantic writes a member of a union: false as 0. And `model_copy` does not
        # call this, so it must not change the choices.
        self._positions.update(positions(self.choices))

    def _own_mistakes(self) -> Iterator[Mistake]:
        if not self.choices:
            yield Mistake(("choices",), "must have at least one choice")
        for index, message in repetitions(self.choices).items():
            yield Mistake(("choices", index), message)

    def values(self) -> Sequence[Scalar]:
        return self.choices

    def position(self, value: Any) -> int | None:
        """The index of this choice; None if it is not one of them."""
        is_scalar = value is None or isinstance(value, str | int | float)
        return self._positions.get(identity(value)) if is_scalar else None

    def mistake_in(self, value: Any) -> str | None:
        if self.position(value) is None:
            return f"must be one of {listed(map(shown, self.choices))}, not {shown(value)}"
        return None


Parameter = Annotated[FloatParameter | IntParameter | CategoricalParameter, Field(discriminator="type")]


def position(values: Sequence[Scalar], value: Any) -> int | None:
    """The index of `value` among `values`, compared as JSON (see `same`); None if it is not one of them."""
    if isinstance(values, range | Steps) and (isinstance(value, bool) or not isinstance(value, int | float)):
        return None
    if isinstance(values, Steps):
        return values.position(value)
    if isinstance(values, range):
        return values.index(int(value)) if value == int(value) and int(value) in values else None
    index = -1
    try:
        while index < 0 or not same(values[index], value):  # for 1, `index` also finds true
            index = values.index(value, index + 1)
    except ValueError:
        return None
    return index


def nearest_position(values: Sequence[Scalar], value: Any) -> int | None:
    """As `position`; a number that no value equals is at the first value that differs only by a float's rounding."""
    exact = position(values, value)
    if exact is not None or not isinstance(value, float) or isinstance(values, range | Steps):
        return exact
    close = (isinstance(one, float) and math.isclose(one, value, rel_tol=1e-12) for one in values)
    return next((index for index, is_close in enumerate(close) if is_close), None)


def on_step(parameter: FloatParameter, value: float) -> float:
    """The step from which `value` differs only by a float's rounding; or else the value."""
    steps = parameter.values()
    index = None if steps is None else position(steps, value)
    return float(value) if steps is None or index is None else steps[index]


def coded(parameter: Parameter, value: Any) -> Any:
    """The value as a number, the same for equal values: a choice as its index, a float as its step."""
    if isinstance(parameter, CategoricalParameter):
        return parameter.position(value)
    return on_step(parameter, value) if isinstance(parameter, FloatParameter) else value


def _range_mistakes(low: float, high: float, *, log: bool, lowest: float, lowest_included: bool) -> Iterator[Mistake]:
    if log and (low < lowest or (low == lowest and not lowest_included)):
        yield Mistake(("low",), f"must be {'>=' if lowest_included else '>'} {lowest} when log is true")
    if low > high:
        yield Mistake(("low",), f"must be <= high, which is {high:g}")
