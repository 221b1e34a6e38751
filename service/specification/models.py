"""An experiment's specification: the body of `POST /v1/experiments`."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from search.constraints import Constraint
from search.early_stopping import EarlyStoppingSpec, NoneSpec
from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from search.early_stopping.rules.pbt import MIN_MEMBERS, Pbt
from search.mistakes import Mistake, refuse
from search.problem import Direction, Problem
from search.samplers import SamplerSpec
from search.space.forbidden import Forbidden, mistakes_in_forbidden
from search.space.space import Space
from trainer.wire import Kind, Trainer

_EXPERIMENT_ID = re.compile(r"^x-[0-9a-f]{12}$")


def _not_an_id(name: str) -> str:
    if _EXPERIMENT_ID.match(name):
        raise ValueError("must not look like an experiment's id (x- and 12 hex digits)")
    return name


Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="letters, digits, dot, dash, underscore"),
    AfterValidator(_not_an_id),
]


class SpecPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Objective(SpecPart):
    metric: str = Field(min_length=1)
    direction: Direction
    target: float | None = Field(default=None, allow_inf_nan=False)

    def is_reached_by(self, value: float) -> bool:
        if self.target is None:
            return False
        return value >= self.target if self.direction == "maximize" else value <= self.target


class NoImprovementSpec(SpecPart):
    """Ends the experiment when its last `trials` finished trials do not beat the earlier best by `min_delta`."""

    trials: PositiveInt
    min_delta: NonNegativeFloat = Field(default=0.0, allow_inf_nan=False)


class LimitsSpec(SpecPart):
    max_trials: PositiveInt = 100
    parallelism: PositiveInt = 1
    max_seconds: PositiveFloat | None = None
    max_trial_seconds: PositiveFloat | None = None
    no_improvement: NoImprovementSpec | None = None


class FailuresSpec(SpecPart):
    max_retries: NonNegativeInt = 0
    max_failed_trials: NonNegativeInt | None = None
    report_timeout_seconds: PositiveFloat | None = None


class CheckpointsSpec(SpecPart):
    keep: PositiveInt = 1


STORED = object()
"""The validation context for a spec that the service has accepted before.

Its parts are not checked against each other again: an older version of the service may have had fewer rules."""


class ExperimentSpec(SpecPart):
    name: Name
    forbid: Forbidden = Field(
        default_factory=list,
        description="combinations that are never tried: each is a set of conditions on parameters that all hold",
    )
    space: Space
    config: dict[str, JsonValue] = Field(default_factory=dict)
    objectives: list[Objective] = Field(min_length=1, max_length=8)
    constraints: list[Constraint] = Field(default_factory=list, max_length=32)
    search: SamplerSpec = Field(default_factory=SamplerSpec)
    early_stopping: EarlyStoppingSpec = Field(default_factory=NoneSpec)
    enqueue: list[dict[str, JsonValue]] = Field(default_factory=list)
    trainer: Trainer = Field(default_factory=Trainer)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    failures: FailuresSpec = Field(default_factory=FailuresSpec)
    checkpoints: CheckpointsSpec = Field(default_factory=CheckpointsSpec)
    step_metric: str | None = None
    priority: int = Field(default=0, ge=-1000, le=1000)
    tags: dict[str, str] = Field(default_factory=dict)

    @field_validator("space")
    @classmethod
    def _apply_forbid(cls, space: Space, spec: ValidationInfo) -> Space:
        return space.without(spec.data.get("forbid", ()))

    @cached_property
    def objective(self) -> Objective:
        """The first objective, whose curve is used where only one objective counts."""
        return self.objectives[0]

    @cached_property
    def problem(self) -> Problem:
        """What the search knows of the experiment before its first trial."""
        return Problem(
            space=self.space,
            directions=tuple(objective.direction for objective in self.objectives),
            constrained=bool(self.constraints),
            prunes=not isinstance(self.early_stopping, NoneSpec),
            max_trials=self.limits.max_trials,
            parallelism=self.limits.parallelism,
            population=isinstance(self.early_stopping, Pbt),
        )

    @cached_property
    def compared_metric(self) -> ComparedMetric:
        """The metric that early stopping compares trials by."""
        return compared_metric_of(self.early_stopping, self.objective_metrics)

    @cached_property
    def objective_metrics(self) -> list[ComparedMetric]:
        return [ComparedMetric(objective.metric, objective.direction) for objective in self.objectives]

    @model_validator(mode="after")
    def _check_consistency(self, validation: ValidationInfo) -> Self:
        if validation.context is not STORED:
            refuse(type(self).__name__, self._mistakes(), {})
        return self

    def _mistakes(self) -> Iterator[Mistake]:
        yield from _repeated("objectives", [one.metric for one in self.objectives], "give each metric once")
        yield from _repeated("constraints", [one.metric for one in self.constraints], "give max and min in one entry")
        for mistake in mistakes_in_forbidden(self.space):
            yield mistake.under("forbid")
        yield from self.search.mistakes_with(self.problem)
        for mistake in mistakes_in_metric(self.early_stopping, self.objective_metrics):
            yield mistake.under("early_stopping")
        if isinstance(self.early_stopping, Pbt) and self.limits.max_trials < MIN_MEMBERS:
            yield Mistake(("limits", "max_trials"), f"is the population of pbt: must be {MIN_MEMBERS} or more")
        if self.trainer.kind is not Kind.EXTERNAL and self.trainer.entrypoint is None:
            yield Mistake(("trainer", "entrypoint"), "is required: module:function, as in train:train_fn")
        if self.limits.no_improvement and len(self.objectives) > 1:
            yield Mistake(("limits", "no_improvement"), "works with one objective only; leave it out")
        for name in self.config:
            if name in self.space.root:
                yield Mistake(("config", name), "is also a parameter of the space; rename one of the two")
        yield from self._enqueue_mistakes()

    def _enqueue_mistakes(self) -> Iterator[Mistake]:
        if len(self.enqueue) > self.limits.max_trials:
            yield Mistake(("enqueue",), f"has {len(self.enqueue)} entries, more than limits.max_trials")
        for index, params in enumerate(self.enqueue):
            for mistake in self.space.mistakes_in(params):
                yield mistake.under("enqueue", index)


def _repeated(field: str, metrics: list[str], remedy: str) -> Iterator[Mistake]:
    for index, metric in enumerate(metrics):
        if metric in metrics[:index]:
            yield Mistake((field, index, "metric"), f"{metric!r} appears twice; {remedy}")
