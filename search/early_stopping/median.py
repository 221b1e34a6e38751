"""The median rule (Golovin et al., 2017), as Optuna's MedianPruner has it."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from search.early_stopping.base import RuleOptions, compared, if_finite
from search.early_stopping.rule import Peers, Verdict
from search.problem import Direction


class Median(RuleOptions):
    """Stops a trial whose best value so far is worse than the median of the completed trials' values at this step.

    It says nothing before `n_startup_trials` have completed, before step `n_warmup_steps`, between its intervals, and
    where fewer than `n_min_trials` completed trials have a value.
    """

    reads_history: ClassVar[bool] = True
    rule: Literal["median"] = "median"
    n_startup_trials: Annotated[int, Field(ge=0)] = 5
    n_warmup_steps: Annotated[int, Field(ge=0)] = 0
    interval_steps: Annotated[int, Field(ge=1)] = 1
    n_min_trials: Annotated[int, Field(ge=1)] = 1

    def milestones(self, previous_step: int | None, step: int) -> list[int]:
        """Every step from the warm-up on: others are compared at any step at which they have reported."""
        is_new = previous_step is None or previous_step < step
        return [step] if is_new and step >= self.n_warmup_steps else []

    def judge(
        self,
        *,
        metric: str,
        direction: Direction,
        milestone: int,
        step: int,
        curve: Mapping[int, float],
        peers: Peers,
        completed_count: int | None = None,
    ) -> Verdict | None:
        others = peers.completed()
        started = (len(others) if completed_count is None else completed_count) >= self.n_startup_trials
        if not curve or not started or len(others) < self.n_min_trials or not self._is_due(step, curve):
            return None
        best = max(curve.values()) if direction == "maximize" else min(curve.values())
        median = _median(others)
        if math.isnan(median):
            return None
        own, relation = compared(best, median)
        return Verdict(
            stop=best < median if direction == "maximize" else best > median,
            rule=self.rule,
            step=step,
            milestone=milestone,
            value=best,
            cutoff=if_finite(median),
            compared_count=len(others),
            reason=f"the best {metric} up to step {step}, {own}, is {relation}, "
            f"the median of {len(others)} completed trials there",
        )

    def _is_due(self, step: int, curve: Mapping[int, float]) -> bool:
        """Whether this is the first report since the latest check was due."""
        due = step - (step - self.n_warmup_steps) % self.interval_steps
        return max((other for other in curve if other != step), default=-1) < due


def _median(values: Sequence[float]) -> float:
    with np.errstate(invalid="ignore"):  # between infinities there is no middle, which is NaN
        return float(np.percentile(values, 50))
