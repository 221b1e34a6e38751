"""Asynchronous successive halving (Li et al., 2020); without promotion as Optuna's SuccessiveHalvingPruner has it."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.base import MAX_COUNT
from search.early_stopping.promoting import arrival, promotions
from search.early_stopping.rule import History, Reported, Verdict
from search.early_stopping.rungs import Rungs
from search.early_stopping.waiting import Release, Waiting


class Asha(Rungs):
    """The rungs are the steps `min_step * reduction_factor ** (min_early_stopping_rate + i)`, i = 0, 1, 2, ...

    There is none at `max_step`, the last step of a whole trial, and none beyond.

    `promote`: trials that are not among the best of a rung wait there, and go on when they are.
    """

    rule: Literal["asha"] = "asha"
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=50)] = 0
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    promote: bool = False

    @property
    def pauses(self) -> bool:
        return self.promote

    def first_rung(self, number: int) -> int:  # noqa: ARG002
        return self.min_step * int(self.reduction_factor**self.min_early_stopping_rate)

    def milestones(self, report: Reported, history: History) -> list[int]:
        rungs = super().milestones(report, history)
        return rungs if self.max_step is None else [rung for rung in rungs if rung < self.max_step]

    def releases(self, waiting: Waiting) -> Iterator[Release]:
        return promotions(self, waiting)

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict:
        if self.promote:
            return arrival(self, report, milestone, history)
        return super()._look(report, milestone, history)
