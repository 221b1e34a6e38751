"""What early stopping disregards when it compares trials by one metric, and whether it can stop any."""

from collections.abc import Iterator, Sequence

from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of
from search.early_stopping.history import ALL
from search.early_stopping.plugin_rules import check_traits, rule_failures
from search.early_stopping.rule import Rule, StoppingRule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.patient import Patient
from search.early_stopping.rules.rungs import Rungs
from search.early_stopping.rules.wrappable_rules import NoneSpec
from search.mistakes import Mistake, listed
from search.plugins import PluginFailed
from search.problem import Problem


def warnings_about_comparison(rule: Rule, problem: Problem, objectives: Sequence[ComparedMetric]) -> Iterator[Mistake]:
    """At paths from the experiment's spec. `auto` stops no trials of such problems, and says so itself."""
    if isinstance(rule, NoneSpec | Auto):
        return
    metric = compared_metric_of(rule, objectives).name
    others = [one.name for one in objectives if one.name != metric]
    if len(objectives) > 1 and others:
        message = f"judges trials by {metric} alone: trials that are among the best by {listed(others)} may be stopped"
        yield Mistake(("early_stopping", "metric"), message)
    try:
        check_traits(rule)
        with rule_failures(rule):
            found = list(_warnings_about_steps(rule))
    except PluginFailed as error:
        found = [Mistake(("early_stopping", "rule"), str(error))]
    yield from found
    if problem.constrained:
        message = f"judges trials by {metric} and not by constraints: the only feasible trials may be stopped"
        yield Mistake(("early_stopping", "rule"), message)


def _warnings_about_steps(rule: Rule) -> Iterator[Mistake]:
    if not isinstance(rule, StoppingRule) or rule.last_step is None:
        return
    last = rule.last_step
    rungs, where = (rule.wrapped_rule, ("wrapped_rule",)) if isinstance(rule, Patient) else (rule, ())
    first = rungs.first_rung(ALL) if isinstance(rungs, Rungs) else 0
    if first >= last:
        yield Mistake(
            ("early_stopping", *where, "max_step"), f"is {last}, and the first rung is {first}: no trial is stopped"
        )
    elif rule.grace_steps >= last:
        yield Mistake(("early_stopping", "grace_steps"), f"is not below the last step, {last}: no trial is stopped")
