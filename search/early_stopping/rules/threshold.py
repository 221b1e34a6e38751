"""Bounds on the metric, as Optuna's ThresholdPruner implements them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from search.early_stopping.decision import Verdict, compared
from search.early_stopping.history import History, MetricReport
from search.early_stopping.rule import StoppingRule

Bound = Annotated[float, Field(allow_inf_nan=False)]


class Threshold(StoppingRule):
    """Stops a trial whose value is below `lower` or above `upper`.

    There is no verdict before step `n_warmup_steps` and between intervals.
    """

    rule: Literal["threshold"] = "threshold"
    """the name of the rule"""
    lower: Bound | None = None
    """a trial below this is stopped"""
    upper: Bound | None = None
    """a trial above this is stopped"""
    n_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """no trial is stopped before this step"""
    interval_steps: Annotated[int, Field(ge=1)] = 1
    """trials are judged at every so many steps after the warm-up"""

    @model_validator(mode="after")
    def _has_valid_bounds(self) -> Self:
        if self.lower is None and self.upper is None:
            raise ValueError("needs lower, upper or both")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"lower must not be above upper, which is {self.upper:g}")
        return self

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        return [report.step] if report.is_due(self.n_warmup_steps, self.interval_steps) else []

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:  # noqa: ARG002
        stop, name, bound = self._nearest(report.value)
        value, relation = compared(report.value, bound)
        return Verdict(
            stop=stop,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=bound,
            compared_count=0,
            reason=f"{report.metric} {value} at step {report.step} is {relation}, the {name} bound",
        )

    def _nearest(self, value: float) -> tuple[bool, str, float]:
        """Whether a bound is violated, with its name and value; if none is, the nearest bound."""
        bounds = [(name, bound) for name, bound in (("lower", self.lower), ("upper", self.upper)) if bound is not None]
        for name, bound in bounds:
            if value < bound if name == "lower" else value > bound:
                return True, name, bound
        name, bound = min(bounds, key=lambda one: abs(value - one[1]))
        return False, name, bound
