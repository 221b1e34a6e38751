"""What early stopping disregards when it compares trials by one metric."""

from collections.abc import Iterator, Sequence

from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of
from search.early_stopping.rule import Rule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.standalone_rules import NoneSpec
from search.mistakes import Mistake, listed
from search.problem import Problem


def warnings_about_comparison(rule: Rule, problem: Problem, objectives: Sequence[ComparedMetric]) -> Iterator[Mistake]:
    """At paths from the experiment's spec. `auto` stops no trials of such problems, and says so itself."""
    if isinstance(rule, NoneSpec | Auto):
        return
    metric = compared_metric_of(rule, objectives).name
    others = [one.name for one in objectives if one.name != metric]
    if len(objectives) > 1 and others:
        message = (
            f"compares trials by {metric} alone: trials that are among the best by {listed(others)} may be stopped"
        )
        yield Mistake(("early_stopping", "metric"), message)
    if problem.constrained:
        message = f"compares trials by {metric} and not by constraints: the only feasible trials may be stopped"
        yield Mistake(("early_stopping", "rule"), message)
