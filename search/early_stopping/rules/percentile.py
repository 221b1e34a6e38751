"""Comparison with the completed trials at the same step (Golovin et al., 2017), as Optuna's pruners have it."""

import math
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.contract import AT_END, COMPLETED, History, Peer, Peers, Reported, Verdict
from search.early_stopping.rule_base import MAX_COUNT, StoppingRule, around, compared, if_finite, numbers


def is_due(report: Reported, n_warmup_steps: int, interval_steps: int) -> bool:
    """Whether this is the first report since the latest check was due."""
    due = report.step - (report.step - n_warmup_steps) % interval_steps
    before = -1 if report.previous_step is None else report.previous_step
    return report.is_new and report.step >= n_warmup_steps and before < due


class Quantile(StoppingRule):
    """Stops a trial whose best value so far is worse than a percentile of the completed trials' values at this step.

    It says nothing before `n_startup_trials` have completed, before step `n_warmup_steps`, between its intervals, and
    where fewer than `n_min_trials` completed trials have a value.
    """

    rule: str
    n_startup_trials: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 5
    n_warmup_steps: Annotated[int, Field(ge=0)] = 0
    interval_steps: Annotated[int, Field(ge=1)] = 1
    n_min_trials: Annotated[int, Field(ge=1)] = 1

    @property
    def compares_completed(self) -> bool:
        return True

    @property
    def best_percent(self) -> float:
        raise NotImplementedError

    def name(self) -> str:
        raise NotImplementedError

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        """Every step from the warm-up on: others are compared at any step at which they have reported."""
        return [report.step] if report.is_new and report.step >= self.n_warmup_steps else []

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        if not is_due(report, self.n_warmup_steps, self.interval_steps):
            return None
        if not self._has_started(report, history):
            return None
        peers = history.peers(milestone, COMPLETED)
        count = peers.count()
        if count < self.n_min_trials:
            return None
        cutoff, near = self._cutoff(peers, count, report)
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
            cutoff=if_finite(cutoff),
            compared_count=count,
            reason=f"the best {report.metric} up to step {report.step}, {own}, is {relation}, "
            f"{self.name()} of {count} completed trials there",
            compared_with=numbers(near),
        )

    def _has_started(self, report: Reported, history: History) -> bool:
        needed = self.n_startup_trials
        return not needed or bool(history.peers(AT_END, COMPLETED).ranked(report.direction, needed - 1, 1))

    def _cutoff(self, peers: Peers, count: int, report: Reported) -> tuple[float, list[Peer]]:
        """Between the two nearest values, as numpy.percentile has it; with the trials around it."""
        upwards = report.direction == "minimize"
        percent = self.best_percent if upwards else 100 - self.best_percent
        place = (count - 1) * (percent / 100)
        low = math.floor(place)
        high = min(low + 1, count - 1)
        first, found = around(peers, report.direction, low if upwards else count - 1 - high)
        lower, upper = (found[(one if upwards else count - 1 - one) - first].value for one in (low, high))
        return _between(lower, upper, place - low), list(found)


class Percentile(Quantile):
    """`percentile`: the best part of the completed trials, in percent, that a trial must hold out with."""

    rule: Literal["percentile"] = "percentile"
    percentile: Annotated[float, Field(ge=0, le=100)]

    @property
    def best_percent(self) -> float:
        return self.percentile

    def name(self) -> str:
        return f"the edge of the best {self.percentile:g}%"


class Median(Quantile):
    """The percentile rule at 50."""

    rule: Literal["median"] = "median"

    @property
    def best_percent(self) -> float:
        return 50

    def name(self) -> str:
        return "the median"


def _between(lower: float, upper: float, part: float) -> float:
    if lower == upper:
        return lower
    gap = upper - lower
    # From the nearer one, as numpy does: the farther one's rounding would show.
    return lower + gap * part if part < 0.5 else upper - gap * (1 - part)  # noqa: PLR2004
