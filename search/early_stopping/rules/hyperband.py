"""Hyperband (Li et al., 2018) over asynchronous successive halving, as Optuna's HyperbandPruner has it."""

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Literal, Self
from zlib import crc32

from pydantic import Field, model_validator

from search.early_stopping.rule_base import MAX_COUNT
from search.early_stopping.rules.halving import Halving


class Hyperband(Halving):
    """Several brackets of successive halving, the later ones with a higher first rung; trials meet in their own only.

    `max_step` is the last step of a trial that nobody stops. A trial's bracket is a function of its number. With
    `promote` there is no rung at that step: who is there has come to its end.
    """

    rule: Literal["hyperband"] = "hyperband"
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)]

    @model_validator(mode="after")
    def _there_is_a_bracket(self) -> Self:
        if self.max_step < self.min_step:
            raise ValueError(f"max_step must be at least min_step, which is {self.min_step}")
        return self

    def bracket_of(self, number: int) -> int:
        place = crc32(f"hyperband_{number}".encode()) % self._shares[-1]
        return next(bracket for bracket, share in enumerate(self._shares) if place < share)

    def pool_of(self, number: int) -> int:
        return self.bracket_of(number)

    def pools_at(self, rung: int) -> Iterable[int]:
        return (bracket for bracket in range(len(self._shares)) if self._first_rung(bracket) <= rung)

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
    def _shares(self) -> list[int]:
        """Up to which place, of as many as the last one says, trials go to each bracket."""
        count = math.floor(math.log(self.max_step / self.min_step, self.reduction_factor)) + 1
        return list(accumulate(math.ceil(count * self.reduction_factor**s / (s + 1)) for s in reversed(range(count))))
