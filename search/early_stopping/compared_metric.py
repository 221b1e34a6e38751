"""The metric that early stopping compares trials by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from search.early_stopping.in_memory_curve import InMemoryCurve
from search.early_stopping.rule import Rule, StoppingRule
from search.mistakes import Mistake, listed
from search.problem import Direction


@dataclass(frozen=True)
class ComparedMetric:
    """`takes_best`: the result of a trial that ran to its end is the best of its values, not the newest."""

    name: str
    direction: Direction
    takes_best: bool = False

    def result_of(self, curve: InMemoryCurve) -> float | None:
        return curve.best(self.direction) if self.takes_best and curve else curve.newest


def compared_metric_of(rule: Rule, objectives: Sequence[ComparedMetric]) -> ComparedMetric:
    """The rule's own metric, or the first objective. The rule has no `mistakes_in_metric`."""
    metric = rule.metric if isinstance(rule, StoppingRule) else None
    direction = rule.direction if isinstance(rule, StoppingRule) else None
    by_name = {one.name: one for one in objectives}
    if metric is None or metric in by_name:
        return by_name.get(metric or "", objectives[0])
    return ComparedMetric(metric, direction or "minimize")


def mistakes_in_metric(rule: Rule, objectives: Sequence[ComparedMetric]) -> Iterator[Mistake]:
    """Mistakes in the rule's `metric` and `direction`; paths start at the rule."""
    if not isinstance(rule, StoppingRule):
        return
    by_name = {one.name: one for one in objectives}
    if rule.metric is None:
        if len(by_name) > 1:
            yield Mistake(
                ("metric",), f"is required with several objectives: one of {listed(by_name)}, or another metric"
            )
        if rule.direction is not None:
            yield Mistake(("direction",), "needs metric; the objective has its own direction")
    elif rule.metric not in by_name and rule.direction is None:
        yield Mistake(("direction",), f"is required, because {rule.metric} is not an objective: minimize or maximize")
    elif rule.metric in by_name and rule.direction not in {None, by_name[rule.metric].direction}:
        yield Mistake(("direction",), f"must be {by_name[rule.metric].direction}, the direction of the objective")
