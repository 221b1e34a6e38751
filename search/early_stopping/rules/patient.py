"""Tolerance for another rule: it may stop a trial only while that gets no better, as Optuna's PatientPruner has it."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from search.early_stopping.contract import History, Reported, Verdict
from search.early_stopping.rule_base import RuleOptions, StoppingRule, compared, if_finite
from search.early_stopping.rules.simple import NoneSpec, SimpleRule
from search.mistakes import Mistake, refuse

_COMMON = tuple(StoppingRule.model_fields)


class Patient(StoppingRule):
    """The wrapped rule is asked once a trial's last `patience + 1` reports are worse than its best before them.

    Worse by more than `min_delta`. Without a wrapped rule, such a trial is stopped.
    """

    rule: Literal["patient"] = "patient"
    wrapped_rule: SimpleRule = Field(default_factory=NoneSpec)
    patience: Annotated[int, Field(ge=0)]
    min_delta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _common_options_stand_once(cls, given: Any) -> Any:
        wrapped = given.get("wrapped_rule") if isinstance(given, dict) else None
        if isinstance(wrapped, dict):
            twice = [name for name in _COMMON if wrapped.get(name)]
            mistakes = [Mistake(("wrapped_rule", name), "goes beside wrapped_rule") for name in twice]
            refuse(cls.__name__, mistakes, given)
        return given

    @field_validator("wrapped_rule")
    @classmethod
    def _nobody_waits(cls, wrapped: RuleOptions) -> RuleOptions:
        if wrapped.pauses:
            raise ValueError("must be a rule that has no trials wait, such as asha without promote")
        return wrapped

    @property
    def compares_completed(self) -> bool:
        return self.wrapped_rule.compares_completed

    def pool_of(self, number: int) -> int:
        return self.wrapped_rule.pool_of(number)

    def milestones(self, report: Reported, history: History) -> list[int]:
        """A trial that gets better passes rungs unseen, and is looked at when it no longer does."""
        if isinstance(self.wrapped_rule, NoneSpec):
            return [report.step]
        if not self.wrapped_rule.by_rungs:
            return self.wrapped_rule.milestones(report, history)
        if self._waited(report, history) is None:
            return []
        return self.wrapped_rule.milestones(replace(report, previous_step=None), history)

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict | None:
        waited = self._waited(report, history)
        if waited is None:
            return None
        value, before = waited
        mine, relation = compared(value, before)
        reason = (
            f"the best {report.metric} of the last {self.patience + 1} reports, {mine}, is {relation}, the best before"
        )
        if not isinstance(self.wrapped_rule, NoneSpec):
            said = self.wrapped_rule.judge(report, milestone, history)
            return said and replace(said, rule=self.rule, reason=f"{reason}, and {said.reason}")
        return Verdict(
            stop=True,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=value,
            cutoff=if_finite(before),
            compared_count=0,
            reason=reason,
        )

    def _waited(self, report: Reported, history: History) -> tuple[float, float] | None:
        """The best since, and the best before, when patience is over."""
        values = [value for _, value in sorted(history.curve().items())]
        if len(values) <= self.patience + 1:
            return None
        since, before = (report.best(part) for part in (values[-self.patience - 1 :], values[: -self.patience - 1]))
        least = before - self.min_delta if report.direction == "maximize" else before + self.min_delta
        return (since, before) if report.is_worse(since, least) else None
