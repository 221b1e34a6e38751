"""Successive halving that stops for good who is not among the best of a rung, or has them wait for their promotion."""

from collections.abc import Iterator

from search.early_stopping.contract import History, Reported, Verdict
from search.early_stopping.pause_contract import Release, Waiting
from search.early_stopping.rules.promotion import arrival, promotions
from search.early_stopping.rules.rungs import Rungs


class Halving(Rungs):
    """`promote`: trials that are not among the best of a rung wait there, and go on when they are."""

    promote: bool = False

    @property
    def pauses(self) -> bool:
        return self.promote

    def releases(self, waiting: Waiting) -> Iterator[Release]:
        return promotions(self, waiting)

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict:
        if self.promote:
            return arrival(self, report, milestone, history)
        return super()._look(report, milestone, history)
