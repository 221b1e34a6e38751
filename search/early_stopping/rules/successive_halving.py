"""Successive halving that stops trials which are not among the best of a rung, or pauses them until they are."""

from collections.abc import Iterator

from search.early_stopping.decision import Release, Verdict
from search.early_stopping.history import History, MetricReport
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.rules.promotion import arrival, promotions
from search.early_stopping.rules.rungs import Rungs


class SuccessiveHalving(Rungs):
    """`promote`: a trial that is not among the best of a rung is paused there, and resumes when it is."""

    promote: bool = False

    @property
    def pauses(self) -> bool:
        return self.promote

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:
        if self.promote:
            return arrival(self, report, milestone, history)
        return super().judge(report, milestone, history)

    def releases(self, paused: PausedTrials) -> Iterator[Release]:
        return promotions(self, paused)
