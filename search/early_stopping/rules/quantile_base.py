"""Comparison with a quantile of the completed trials at the same step: the base of `median` and `percentile`."""

import math
from typing import Annotated

from pydantic import Field

from search.early_stopping.decision import Verdict, compared, peers_around
from search.early_stopping.history import AT_END, COMPLETED, History, MetricReport
from search.early_stopping.peers import Peer, Peers
from search.early_stopping.rule import MAX_COUNT, StoppingRule
from search.numbers_in_messages import counted
from search.reported_numbers import finite_number


class Quantile(StoppingRule):
    """Stops a trial whose best value so far is worse than a percentile of the completed trials' values at this step.

    There is no verdict before `n_startup_trials` have completed, before step `n_warmup_steps`, between intervals, and
    at a step at which fewer than `n_min_trials` completed trials have a value.
    """

    n_startup_trials: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 5
    """no trial is stopped before so many have completed"""
    n_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """no trial is stopped before this step"""
    interval_steps: Annotated[int, Field(ge=1)] = 1
    """trials are judged at every so many steps after the warm-up"""
    n_min_trials: Annotated[int, Field(ge=1)] = 1
    """a step is judged when so many completed trials have reported it"""

    @property
    def compares_completed(self) -> bool:
        return True

    @property
    def best_percent(self) -> float:
        """The best part of the completed trials, in percent."""
        raise NotImplementedError

    def cutoff_name(self) -> str:
        """The cutoff in words."""
        raise NotImplementedError

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        """Every step after the warm-up, because others are compared at any step at which this trial has reported."""
        return [report.step] if report.is_new and report.step >= self.n_warmup_steps else []

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict | None:
        if not report.is_due(self.n_warmup_steps, self.interval_steps) or not self._has_started(report, history):
            return None
        peers = history.peers(milestone, COMPLETED)
        count = peers.count()
        if count < self.n_min_trials:
            return None
        cutoff, nearest = self._cutoff(peers, count, report)
        if math.isnan(cutoff):
            return None
        best = history.best_value(report.direction)
        own, relation = compared(best, cutoff)
        return Verdict(
            stop=report.is_worse(best, cutoff),
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=best,
            cutoff=finite_number(cutoff),
            compared_count=count,
            reason=f"the best {report.metric} up to step {report.step}, {own}, is {relation}, "
            f"{self.cutoff_name()} of {counted(count, 'completed trial')} there",
            compared_with=tuple(peer.number for peer in nearest),
        )

    def _has_started(self, report: MetricReport, history: History) -> bool:
        needed = self.n_startup_trials
        return not needed or bool(history.peers(AT_END, COMPLETED).ranked(report.direction, needed - 1, 1))

    def _cutoff(self, peers: Peers, count: int, report: MetricReport) -> tuple[float, list[Peer]]:
        """Interpolated between the two nearest values, as numpy.percentile does; with the trials around it."""
        upwards = report.direction == "minimize"
        percent = self.best_percent if upwards else 100 - self.best_percent
        rank = (count - 1) * (percent / 100)
        low = math.floor(rank)
        high = min(low + 1, count - 1)
        first, found = peers_around(peers, report.direction, low if upwards else count - 1 - high)
        lower, upper = (found[(one if upwards else count - 1 - one) - first].value for one in (low, high))
        return _between(lower, upper, rank - low), list(found)


def _between(lower: float, upper: float, part: float) -> float:
    if lower == upper:
        return lower
    gap = upper - lower
    # From the nearer value, as numpy does, so that the rounding is the same.
    return lower + gap * part if part < 0.5 else upper - gap * (1 - part)  # noqa: PLR2004
