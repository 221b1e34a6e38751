"""The rule `plateau`: a trial stops when its metric has not changed for some steps."""

from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.decision import Verdict
from search.early_stopping.history import History, MetricReport
from search.early_stopping.rule import StoppingRule


class Plateau(StoppingRule):
    rule: Literal["plateau"] = "plateau"
    steps: Annotated[int, Field(ge=1)] = 3
    tolerance: Annotated[float, Field(ge=0)] = 0.0

    def milestones(self, report: MetricReport, history: History) -> list[int]:
        return [report.step] if report.is_new else []

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict | None:
        curve = history.curve()
        recent = [curve[step] for step in sorted(curve) if step <= milestone][-self.steps - 1 :]
        if len(recent) <= self.steps:
            return None
        width = max(recent) - min(recent)
        return Verdict(
            stop=width <= self.tolerance,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=None,
            compared_count=0,
            reason=f"{report.metric} has changed by {width:g} in the last {self.steps} steps up to {milestone}",
        )
