"""Hyperband (Li et al., 2018) over asynchronous successive halving, as Optuna's HyperbandPruner does it."""

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from hashlib import sha256
from itertools import accumulate
from typing import Annotated, Literal, Self
from zlib import crc32

from pydantic import Field, model_validator

from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.rule import MAX_COUNT
from search.early_stopping.rules.successive_halving import SuccessiveHalving

CRC_RANGE = 2**32


class Hyperband(SuccessiveHalving):
    """Several brackets of successive halving, each with a higher first rung than the one before.

    A trial is compared only within its bracket, which is a function of its number; with `weighted`, of what had
    completed when it was created. Trials are then recorded at all rungs, also at those below their first one, to see
    how well early ranks predict those at the end; and the last bracket always lets its trials run to the end, so that
    trials go there if no rung tells anything. `max_step` is the last step of a trial that is not stopped. There is no
    rung at that step, because the trial ends there; Optuna prunes most trials that have got so far.
    """

    rule: Literal["hyperband"] = "hyperband"
    """the name of the rule"""
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    """the last step of a trial that is not stopped"""
    weighted: bool = False
    """whether more trials go to the brackets whose first rungs have predicted the ranks at the end well; otherwise each
    bracket has a fixed share"""

    @model_validator(mode="after")
    def _has_a_bracket(self) -> Self:
        if self.max_step < self.min_step:
            raise ValueError(f"max_step must be at least min_step, which is {self.min_step}")
        return self

    @property
    def draws_brackets(self) -> bool:
        return self.weighted

    def draw_bracket(self, number: int, seed: int, completed: CompletedTrials) -> Bracket | None:
        if not self.weighted:
            return None
        from search.early_stopping.rules.bracket_weights import draw, weigh  # noqa: PLC0415 - NumPy is slow to import

        ends = _share_ends(len(self.first_rungs), self.reduction_factor)
        weights = weigh(ends, self.first_rungs, self.max_step, completed, number)
        position = crc32(f"hyperband_{seed}_{number}".encode()) / 2**32
        return draw(weights, self.first_rungs, position)

    def bracket_of(self, number: int, bracket: int | None = None) -> int:
        """The stored `bracket`, or that of the number: if the rule is not weighted, or was not when it was created."""
        if self.weighted and bracket is not None:
            return min(bracket, len(self.first_rungs) - 1)
        ends = _share_ends(self._bracket_count, self.reduction_factor)
        position = _position(number, ends[-1])
        return next(own for own, end in enumerate(ends) if position < end)

    def pool_of(self, number: int, bracket: int | None = None) -> int:
        return self.bracket_of(number, bracket)

    def pools_at(self, rung: int) -> Iterable[int]:
        return (bracket for bracket in range(len(self.first_rungs)) if self.compares_at(rung, bracket))

    def compares_at(self, milestone: int, pool: int) -> bool:
        return milestone >= self.first_rung(pool)

    @property
    def last_step(self) -> int | None:
        return self.max_step

    @cached_property
    def first_rungs(self) -> Sequence[int]:
        """The first rung of each bracket. A bracket which stops no trial has `max_step`."""
        found = [self.min_step * self.reduction_factor**bracket for bracket in range(self._bracket_count)]
        return [*found, self.max_step] if self.weighted and found[-1] < self.max_step else found

    def first_rung(self, pool: int) -> int:
        return self.first_rungs[pool]

    def first_recorded(self, pool: int) -> int:
        return self.min_step if self.weighted else self.first_rung(pool)

    def rung_name(self, pool: int, rung: int) -> str:
        return f"rung {rung} of bracket {pool}"

    @cached_property
    def _bracket_count(self) -> int:
        """The number of brackets, not counting the one that `weighted` may add.

        In integers: Optuna's quotient of logarithms is below 5 for 1 to 243 at 3, which has 6 brackets.
        """
        count = 0
        while self.min_step * self.reduction_factor**count <= self.max_step:
            count += 1
        return count


def _position(number: int, total: int) -> int:
    """The trial's place among `total` shares. That of Optuna, except for totals beyond the range of a CRC-32."""
    name = f"hyperband_{number}".encode()
    return crc32(name) % total if total <= CRC_RANGE else int.from_bytes(sha256(name).digest(), "big") % total


@cache
def _share_ends(count: int, factor: int) -> Sequence[int]:
    """The cumulative shares of so many brackets among the trials; the last one is the total."""
    return list(accumulate(-(-count * factor**s // (s + 1)) for s in reversed(range(count))))
