"""Asynchronous successive halving (Li et al., 2020) that only ever stops, as Optuna's SuccessiveHalvingPruner does."""

from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.rungs import Rungs


class Asha(Rungs):
    """The rungs are the steps `min_step * reduction_factor ** (min_early_stopping_rate + i)`, i = 0, 1, 2, ..."""

    rule: Literal["asha"] = "asha"
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=50)] = 0

    def first_rung(self, number: int) -> int:  # noqa: ARG002
        return self.min_step * int(self.reduction_factor**self.min_early_stopping_rate)
