"""A signed-rank test (Wilcoxon, 1945) against the best trial at the same steps, as Optuna's WilcoxonPruner does it."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.decision import Verdict, compared
from search.early_stopping.history import AT_END, COMPLETED, History, MetricReport
from search.early_stopping.peers import Peer, Peers
from search.early_stopping.rule import StoppingRule
from search.problem import Direction, sign_of

MIN_SHARED_STEPS = 2


class Wilcoxon(StoppingRule):
    """Stops a trial that is significantly worse than the best completed one: with a p-value below `p_threshold`.

    The best one has the best average over all of its steps.

    A step stands for a case on which the metric is measured, such as a fold or an instance; steps may come in any
    order. There is no verdict if the two trials share fewer than `n_startup_steps` steps, or fewer than two. A trial
    whose average is no worse than that of the best one is not stopped.
    """

    rule: Literal["wilcoxon"] = "wilcoxon"
    """the name of the rule"""
    p_threshold: Annotated[float, Field(ge=0, le=1)] = 0.1
    """a trial whose p-value is below this is stopped"""
    n_startup_steps: Annotated[int, Field(ge=0)] = MIN_SHARED_STEPS
    """the number of shared steps before there is a verdict"""

    @property
    def compares_completed(self) -> bool:
        return True

    def value_at_end(self, last_value: float, history: History) -> float:  # noqa: ARG002
        """The average over all cases; the last value is that of a single case."""
        return _average(list(history.curve().values()))

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        return [report.step]

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict | None:
        best = _first_of_the_best(history.peers(AT_END, COMPLETED), report.direction)
        if best is None:
            return None
        own, rival = history.curve(), history.curve(best.number)
        shared = sorted(own.keys() & rival.keys())
        if len(shared) < max(MIN_SHARED_STEPS, self.n_startup_steps):
            return None
        loses = report.is_worse(_average(list(own.values())), _average(list(rival.values())))
        p = _p_value([own[step] - rival[step] for step in shared], report) if loses else None
        value, cutoff = (_average([curve[step] for step in shared]) for curve in (own, rival))
        return Verdict(
            stop=p is not None and p < self.p_threshold,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=value,
            cutoff=cutoff,
            compared_count=1,
            reason=self._reason(report, best, len(shared), compared(value, cutoff), p),
            compared_with=(best.number,),
        )

    def _reason(
        self, report: MetricReport, best: Peer, count: int, comparison: tuple[str, str], p: float | None
    ) -> str:
        value, relation = comparison
        average = f"over {count} shared steps the average {report.metric}, {value},"
        what = f"{average} is {relation}, that of trial {best.number}"
        if p is None:
            return f"{what}, the best trial so far, whose average over all of its steps is no better"
        threshold = f"p_threshold {self.p_threshold:g}"
        unlikely = "such a difference is unlikely if the trial is no worse"
        significance = f"below {threshold}: {unlikely}" if p < self.p_threshold else f"not below {threshold}"
        return f"{what}, the best trial so far (p = {p:.3g}, {significance})"


def _first_of_the_best(peers: Peers, direction: Direction) -> Peer | None:
    """The best peer; of those that tie, the one with the lowest number."""
    for best in peers.ranked(direction, 0, 1):
        older_count = peers.standing(best.value, direction, best.number).better_count
        return peers.ranked(direction, older_count, 1)[0] if older_count else best
    return None


def _average(values: Sequence[float]) -> float:
    """The average in any order of the values, so that trials tie whose cases came in different orders."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def _p_value(differences: Sequence[float], report: MetricReport) -> float:
    """The probability of such differences if the trial is no worse."""
    from search.early_stopping.rules.signed_rank import signed_rank_p  # noqa: PLC0415 - imports NumPy, which is slow

    return signed_rank_p([sign_of(report.direction) * difference for difference in differences])
