"""Patience around another rule, which may stop a trial only while it does not improve, as Optuna's PatientPruner."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from search.early_stopping.decision import Verdict, compared
from search.early_stopping.history import History, MetricReport
from search.early_stopping.rule import Rule, StoppingRule
from search.early_stopping.rules.rungs import Rungs
from search.early_stopping.rules.wrappable_rules import NoneSpec, WrappableRule, is_plugin
from search.mistakes import Mistake, refuse
from search.plugins import plugin_failures
from search.reported_numbers import finite_number

_COMMON = tuple(name for name in StoppingRule.model_fields if name != "rule")


class Patient(StoppingRule):
    """The wrapped rule judges a trial once its last `patience + 1` reports are worse than the best before them.

    They are worse if the difference is more than `min_delta`. Without a wrapped rule, such a trial is stopped.
    """

    rule: Literal["patient"] = "patient"
    """the name of the rule"""
    wrapped_rule: WrappableRule = Field(default_factory=NoneSpec)
    """the rule that judges a trial that does not improve; absent: it is stopped"""
    patience: Annotated[int, Field(ge=0)]
    """the rule judges a trial when more than so many reports in a row are worse than the best before them"""
    min_delta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """a report is worse if it is worse than the best before by more than this"""

    @model_validator(mode="before")
    @classmethod
    def _common_options_are_not_repeated(cls, given: Any) -> Any:
        wrapped = given.get("wrapped_rule") if isinstance(given, dict) else None
        if isinstance(wrapped, dict):
            repeated = [name for name in _COMMON if wrapped.get(name)]
            mistakes = [
                Mistake(("wrapped_rule", name), "must be set on `patient` itself, not inside wrapped_rule")
                for name in repeated
            ]
            refuse(cls.__name__, mistakes, given)
        return given

    @field_validator("wrapped_rule")
    @classmethod
    def _wrapped_rule_does_not_pause(cls, wrapped: Rule) -> Rule:
        with plugin_failures(wrapped.rule, is_plugin=is_plugin(wrapped)):
            pauses, draws_brackets = bool(wrapped.pauses), bool(wrapped.draws_brackets)
        if pauses:
            raise ValueError("must be a rule that does not pause trials, such as asha without promote")
        if draws_brackets:
            why = "patient does not record improving trials at rungs, which weighted needs"
            raise ValueError(f"must be hyperband without weighted: {why}")
        return wrapped

    @property
    def compares_completed(self) -> bool:
        return self.wrapped_rule.compares_completed

    def value_at_end(self, last_value: float, history: History) -> float:
        return self.wrapped_rule.value_at_end(last_value, history)

    @property
    def last_step(self) -> int | None:
        return self.wrapped_rule.last_step if isinstance(self.wrapped_rule, StoppingRule) else None

    def why_spared(self, report: MetricReport) -> str | None:
        spared = super().why_spared(report)
        return (
            self.wrapped_rule.why_spared(report) if spared is None and isinstance(self.wrapped_rule, Rungs) else spared
        )

    def pool_of(self, number: int, bracket: int | None = None) -> int:
        return self.wrapped_rule.pool_of(number, bracket)

    def milestones(self, report: MetricReport, history: History) -> list[int]:
        """The wrapped rule's; but a trial that improves reaches no rung until it stops improving, and then all.

        So does Optuna's PatientPruner.
        """
        if isinstance(self.wrapped_rule, NoneSpec):
            return [report.step]
        if not isinstance(self.wrapped_rule, Rungs):
            return self.wrapped_rule.milestones(report, history)
        if self._after_patience(report, history) is None:
            return []
        return list(self.wrapped_rule.rungs_up_to(report))

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict | None:
        values = self._after_patience(report, history)
        if values is None:
            return None
        value, before = values
        own, relation = compared(value, before)
        reason = (
            f"the best {report.metric} of the last {self.patience + 1} reports, {own}, is {relation}, the best before"
        )
        if not isinstance(self.wrapped_rule, NoneSpec):
            wrapped = self.wrapped_rule.judge(report, milestone, history)
            return wrapped and replace(wrapped, rule=self.rule, reason=f"{reason}, and {wrapped.reason}")
        return Verdict(
            stop=True,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=value,
            cutoff=finite_number(before),
            compared_count=0,
            reason=reason,
        )

    def _after_patience(self, report: MetricReport, history: History) -> tuple[float, float] | None:
        """The best value of the last reports and the best before them, if patience is exhausted."""
        found = history.best_since_and_before(self.patience + 1, report.direction)
        if found is None:
            return None
        since, before = found
        least = before - self.min_delta if report.direction == "maximize" else before + self.min_delta
        return (since, before) if report.is_worse(since, least) else None
