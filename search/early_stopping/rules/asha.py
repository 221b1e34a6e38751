"""Asynchronous successive halving (Li et al., 2020); without promotion as Optuna's SuccessiveHalvingPruner does it."""

from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.rule import MAX_COUNT
from search.early_stopping.rules.successive_halving import SuccessiveHalving


class Asha(SuccessiveHalving):
    """The rungs are the steps `min_step * reduction_factor ** (min_early_stopping_rate + i)`, i = 0, 1, 2, ...

    There is no rung at or beyond `max_step`, the last step of a trial that is not stopped.
    """

    rule: Literal["asha"] = "asha"
    """the name of the rule"""
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=50)] = 0
    """the number of lowest rungs to skip"""
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    """the last step of a trial that is not stopped: no rung is there or beyond"""

    @property
    def last_step(self) -> int | None:
        return self.max_step

    def first_rung(self, pool: int) -> int:  # noqa: ARG002
        return self.min_step * int(self.reduction_factor**self.min_early_stopping_rate)
