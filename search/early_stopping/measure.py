"""The metric that trials are compared by."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.early_stopping.rule_base import RuleOptions, StoppingRule
from search.mistakes import Mistake, listed
from search.problem import Direction


@dataclass(frozen=True)
class Measure:
    metric: str
    direction: Direction


def measure_of(rule: RuleOptions, objectives: Sequence[Measure]) -> Measure:
    """The rule's own; without one, the first objective. `mistakes_in_measure` must have found none."""
    metric = rule.metric if isinstance(rule, StoppingRule) else None
    direction = rule.direction if isinstance(rule, StoppingRule) else None
    known = {one.metric: one for one in objectives}
    if metric is None or metric in known:
        return known.get(metric or "", objectives[0])
    return Measure(metric, direction or "minimize")


def mistakes_in_measure(rule: RuleOptions, objectives: Sequence[Measure]) -> Iterator[Mistake]:
    """Paths begin within the rule."""
    if not isinstance(rule, StoppingRule):
        return
    known = {one.metric: one for one in objectives}
    if rule.metric is None:
        if len(known) > 1:
            yield Mistake(
                ("metric",), f"is required with several objectives: one of {listed(known)}, or another metric"
            )
        if rule.direction is not None:
            yield Mistake(("direction",), "goes with metric; the objective has a direction of its own")
    elif rule.metric not in known and rule.direction is None:
        yield Mistake(("direction",), f"is required: {rule.metric} is no objective; minimize or maximize")
    elif rule.metric in known and rule.direction not in {None, known[rule.metric].direction}:
        yield Mistake(("direction",), f"must be {known[rule.metric].direction}, as the objective {rule.metric} has it")


def number_in(metrics: Mapping[str, Any], name: str) -> float | None:
    """A reported metric as a finite number; None where there is none."""
    try:
        value = float(metrics[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
