"""Hyperband (Li et al., 2018) over asynchronous successive halving, as Optuna's HyperbandPruner does it."""

from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Literal, Self
from zlib import crc32

from pydantic import Field, model_validator

from search.early_stopping.rule import MAX_COUNT
from search.early_stopping.rules.successive_halving import SuccessiveHalving


class Hyperband(SuccessiveHalving):
    """Several brackets of successive halving, each with a higher first rung than the one before.

    A trial is compared only within its bracket, which is a function of its number. `max_step` is the last step of a
    trial that is not stopped. With `promote` there is no rung at that step, because the trial ends there.
    """

    rule: Literal["hyperband"] = "hyperband"
    """the name of the rule"""
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    """the last step of a trial that is not stopped"""

    @model_validator(mode="after")
    def _has_a_bracket(self) -> Self:
        if self.max_step < self.min_step:
            raise ValueError(f"max_step must be at least min_step, which is {self.min_step}")
        return self

    def bracket_of(self, number: int) -> int:
        position = crc32(f"hyperband_{number}".encode()) % self._share_ends[-1]
        return next(bracket for bracket, end in enumerate(self._share_ends) if position < end)

    def pool_of(self, number: int) -> int:
        return self.bracket_of(number)

    def pools_at(self, rung: int) -> Iterable[int]:
        return (bracket for bracket in range(len(self._share_ends)) if self._first_rung(bracket) <= rung)

    @property
    def rungs_end(self) -> int | None:
        return self.max_step if self.promote else None

    def first_rung(self, number: int) -> int:
        return self._first_rung(self.bracket_of(number))

    def rung_name(self, number: int, rung: int) -> str:
        return f"rung {rung} of bracket {self.bracket_of(number)}"

    def _first_rung(self, bracket: int) -> int:
        return self.min_step * int(self.reduction_factor**bracket)

    @cached_property
    def _share_ends(self) -> list[int]:
        """The cumulative shares of the brackets among the trials; the last one is the total."""
        count = self._bracket_count
        return list(accumulate(-(-count * self.reduction_factor**s // (s + 1)) for s in reversed(range(count))))

    @property
    def _bracket_count(self) -> int:
        """In integers: Optuna's quotient of logarithms is below 5 for 1 to 243 at 3, which has 6 brackets."""
        count = 0
        while self._first_rung(count) <= self.max_step:
            count += 1
        return count
