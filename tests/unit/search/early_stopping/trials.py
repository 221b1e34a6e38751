"""Trials that report to a rule."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from search.early_stopping import EarlyStoppingSpec, InMemoryHistory, MetricReport, Rule, Verdict
from search.early_stopping.bracket import Bracket
from search.problem import Direction


class Spec(BaseModel):
    early_stopping: EarlyStoppingSpec


def rule_of(**options: Any) -> Rule:
    return Spec.model_validate({"early_stopping": options}).early_stopping


class Trials:
    """Trials that report to a rule one after another, as the service lets them."""

    def __init__(self, rule: Rule, direction: Direction = "maximize", metric: str = "val_accuracy") -> None:
        self.rule, self.direction, self.metric = rule, direction, metric
        self.memory = InMemoryHistory()
        self.brackets: dict[int, int] = {}

    def create(self, number: int, seed: int = 0) -> Bracket | None:
        drawn = self.rule.draw_bracket(number, seed, self.memory)
        if drawn is not None:
            self.brackets[number] = drawn.number
        return drawn

    def report(self, number: int, step: int, value: float) -> list[Verdict]:
        curve = self.memory.curves[number]
        before, bracket = max(curve, default=None), self.brackets.get(number)
        report = MetricReport(number, self.metric, self.direction, step, value, before, bracket)
        curve[step] = value
        return list(self.rule.decide(report, self.memory.of(number)))

    def complete(self, number: int) -> None:
        curve = self.memory.curves[number]
        self.memory.complete(self.rule, number, curve[max(curve)])

    def ran(self, number: int, values: Sequence[float], *, first_step: int = 1) -> list[Verdict]:
        """A trial that reports all of the values, even after a verdict to stop, and completes."""
        said = [
            verdict for step, value in enumerate(values, first_step) for verdict in self.report(number, step, value)
        ]
        self.complete(number)
        return said


def at_step_3(values: list[float], **options: Any) -> Trials:
    """Trials 0, 1, ... that reported only at step 3, and completed."""
    trials = Trials(rule_of(**options))
    for number, value in enumerate(values):
        trials.ran(number, [value], first_step=3)
    return trials


def complaints(make: Callable[[], object]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        make()
    return [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()]
