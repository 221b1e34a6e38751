"""A signed-rank test (Wilcoxon, 1945) against the best trial at the same steps, as Optuna's WilcoxonPruner does."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.contract import AT_END, COMPLETED, History, Peer, Peers, Reported, Verdict
from search.early_stopping.rule_base import StoppingRule, compared
from search.early_stopping.rules.signed_rank import signed_rank_p
from search.problem import Direction, sign_of

FEWEST_STEPS = 2


class Wilcoxon(StoppingRule):
    """Stops a trial that is worse than the best completed one, as surely as `p_threshold` says.

    A step stands for a case that the metric is measured on, such as a fold or an instance, and steps may come in any
    order. It says nothing where the two share fewer than `n_startup_steps` steps, or two. A trial whose average is no
    worse than the best one's goes on.
    """

    rule: Literal["wilcoxon"] = "wilcoxon"
    p_threshold: Annotated[float, Field(ge=0, le=1)] = 0.1
    n_startup_steps: Annotated[int, Field(ge=0)] = FEWEST_STEPS

    @property
    def compares_completed(self) -> bool:
        return True

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        return [report.step]

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        best = _first_of_the_best(history.peers(AT_END, COMPLETED), report.direction)
        if best is None:
            return None
        own, rival = history.curve(), history.curve(best.number)
        shared = sorted(own.keys() & rival.keys())
        if len(shared) < max(FEWEST_STEPS, self.n_startup_steps):
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

    def _reason(self, report: Reported, best: Peer, count: int, comparison: tuple[str, str], p: float | None) -> str:
        value, relation = comparison
        average = f"over {count} shared steps the average {report.metric}, {value},"
        what = f"{average} is {relation}, that of trial {best.number}"
        if p is None:
            return f"{what}, the best so far, whose average over all its steps is no better"
        sure = "below" if p < self.p_threshold else "not below"
        return f"{what}, the best so far (that it is no worse: p = {p:.3g}, {sure} {self.p_threshold:g})"


def _first_of_the_best(peers: Peers, direction: Direction) -> Peer | None:
    """Of those that tie, the one with the lowest number, wherever the ranking has it."""
    for best in peers.ranked(direction, 0, 1):
        older_count = peers.standing(best.value, direction, best.number).better_count
        return peers.ranked(direction, older_count, 1)[0] if older_count else best
    return None


def _average(values: Sequence[float]) -> float:
    total = sum(values)
    return total / len(values) if math.isfinite(total) else sum(value / len(values) for value in values)


def _p_value(differences: Sequence[float], report: Reported) -> float:
    """Of such differences coming from a trial that is no worse."""
    return signed_rank_p([sign_of(report.direction) * difference for difference in differences])
