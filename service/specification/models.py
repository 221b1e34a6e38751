"""An experiment's specification: the body of `POST /v1/experiments`."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from search.constraints import Constraint
from search.early_stopping import EarlyStoppingSpec, NoneSpec
from search.early_stopping.compared_metric import ComparedMetric, compared_metric_of, mistakes_in_metric
from search.early_stopping.comparison_warnings import warnings_about_comparison
from search.early_stopping.rules.pbt import Pbt
from search.mistakes import Mistake, refuse
from search.plugins import STORED, is_accepted
from search.problem import Problem
from search.samplers import SAMPLERS, ChosenSampler, SamplerSpec, sampler_meant
from search.space.forbidden import Forbidden, mistakes_in_forbidden
from search.space.precision_mistakes import precision_mistakes
from search.space.scale_warnings import scale_warnings
from search.space.space import Space
from service.specification.cross_field_checks.best_report_checks import mistakes_in_best_report
from service.specification.cross_field_checks.confirm_checks import (
    mistakes_in_confirm,
    mistakes_in_seed,
    warnings_about_confirm,
)
from service.specification.cross_field_checks.enqueue_checks import mistakes_in_enqueue
from service.specification.cross_field_checks.limits_checks import mistakes_in_limits
from service.specification.cross_field_checks.max_trials_checks import (
    mistakes_without_max_trials,
    warnings_without_max_trials,
)
from service.specification.cross_field_checks.pbt_checks import mistakes_in_pbt
from service.specification.cross_field_checks.retention_checks import mistakes_in_retention
from service.specification.cross_field_checks.trainer_checks import mistakes_in_trainer
from service.specification.secrets import mistakes_in_secrets, secret_warnings
from service.specification.spec_sections import (
    SEED,
    CheckpointsSpec,
    ConfirmSpec,
    FailuresSpec,
    LimitsSpec,
    Objective,
    SpecSection,
)
from trainer.wire import Trainer

_EXPERIMENT_ID = re.compile(r"^x-[0-9a-f]{12}$")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_NAME_MISTAKE = "must be 1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or a digit"


def _check_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError(_NAME_MISTAKE)
    if _EXPERIMENT_ID.match(name):
        raise ValueError("must not look like an experiment's id (x- and 12 hex digits)")
    return name


Name = Annotated[
    str,
    Field(json_schema_extra={"pattern": _NAME}, description="letters, digits, dot, dash, underscore"),
    AfterValidator(_check_name),
]


AUTO = "auto"
"""`search: auto` leaves the choice of the sampler and of the stopping rule to the service."""


class ExperimentSpec(SpecSection):
    """An experiment: what to search, and how to run each trial."""

    name: Name
    forbid: Forbidden = Field(
        default_factory=list,
        description="combinations that are never tried: each is a set of conditions on parameters that all hold",
    )
    space: Space
    """the parameters by name"""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """constants: the training function gets `{**config, **params}`"""
    objectives: list[Objective] = Field(min_length=1, max_length=8)
    """what is optimized; with several, the answer is a Pareto front"""
    constraints: list[Constraint] = Field(default_factory=list, max_length=32)
    """bounds on metrics, which a feasible trial satisfies"""
    search: SamplerSpec = Field(default_factory=SamplerSpec)
    """how configurations are proposed"""
    early_stopping: EarlyStoppingSpec = Field(default_factory=NoneSpec)
    """when trials are stopped"""
    enqueue: list[dict[str, JsonValue]] = Field(default_factory=list)
    """configurations to try first"""
    trainer: Trainer = Field(default_factory=Trainer)
    """how a trial is run"""
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    """when the experiment ends, and how much runs at a time"""
    failures: FailuresSpec = Field(default_factory=FailuresSpec)
    """what happens when trials fail"""
    confirm: ConfirmSpec | None = None
    """after the search, run its winners again with other seeds, within limits.max_trials if that is a number"""
    checkpoints: CheckpointsSpec = Field(default_factory=CheckpointsSpec)
    """which checkpoints are kept"""
    step_metric: str | None = None
    """the reported metric that is the step; absent: reports are counted"""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """experiments with a higher one get free resources first"""
    tags: dict[str, str] = Field(default_factory=dict)
    """`name: value`, to find experiments by"""

    @model_validator(mode="before")
    @classmethod
    def _search_auto_chooses_both(cls, given: Any) -> Any:
        """`search: auto` stands for the sampler `auto` and, where no rule is given, for the rule `auto`."""
        if not isinstance(given, dict) or given.get("search") != AUTO:
            return given
        rule = given.get("early_stopping", {})
        if isinstance(rule, dict):
            rule = {"rule": AUTO, **rule}
        return {**given, "search": {"sampler": AUTO}, "early_stopping": rule}

    @field_validator("search", mode="before")
    @classmethod
    def _search_is_an_object(cls, given: Any) -> Any:
        if isinstance(given, str):
            example = given if given in SAMPLERS else sampler_meant(given) or "tpe"
            raise ValueError(f"must be {AUTO}, or an object such as {{sampler: {example}}}")  # noqa: TRY004
        return given

    @field_validator("space")
    @classmethod
    def _apply_forbid(cls, space: Space, spec: ValidationInfo) -> Space:
        return space.without(spec.data.get("forbid", ()))

    @cached_property
    def objective(self) -> Objective:
        """The first objective, whose curve is used where only one objective counts."""
        return self.objectives[0]

    @cached_property
    def max_search_trials(self) -> int | None:
        """The trials that the search may have before its winners are confirmed; None is no limit."""
        if self.limits.max_trials is None:
            return None
        return self.limits.max_trials - self.kept_for_confirmations

    @property
    def kept_for_confirmations(self) -> int:
        """How many trials are not the search's, because they are to confirm its winners."""
        return self.confirm.trial_count if self.confirm else 0

    def has_room(self, created: int, more: int = 1) -> bool:
        """Whether the search may have `more` trials than those that are created."""
        return self.max_search_trials is None or created + more <= self.max_search_trials

    @cached_property
    def problem(self) -> Problem:
        """What the search knows of the experiment before its first trial."""
        return Problem(
            space=self.space,
            directions=tuple(objective.direction for objective in self.objectives),
            constrained=bool(self.constraints),
            prunes=not isinstance(self.early_stopping, NoneSpec),
            max_trials=self.max_search_trials,
            parallelism=self.limits.parallelism,
            population=isinstance(self.early_stopping, Pbt),
            compares_objective=self.compared_metric == self.objective_metrics[0],
            other_limits=self._other_limits,
        )

    @property
    def _may_run_without_end(self) -> bool:
        """Whether neither a number of trials nor the sampler ends the search."""
        return self.limits.max_trials is None and not self.chosen_sampler.is_exhaustive

    @property
    def _other_limits(self) -> tuple[str, ...]:
        """The fields that may end the search before its trials are used up. An end by failures is not planned for."""
        names = ("max_seconds", "max_gpu_hours", "no_improvement")
        limits = [f"limits.{name}" for name in names if getattr(self.limits, name) is not None]
        targets = [f"objectives.{n}.target" for n, one in enumerate(self.objectives) if one.target is not None]
        return (*limits, *targets)

    @cached_property
    def chosen_sampler(self) -> ChosenSampler:
        """The sampler that proposes; for `auto` the one that it chooses."""
        return self.search.chosen_for(self.problem)

    @cached_property
    def valued_metrics(self) -> frozenset[str]:
        """The metrics of objectives and constraints, of which every trial keeps a value."""
        return frozenset({one.metric for one in self.objectives} | {one.metric for one in self.constraints})

    @cached_property
    def compared_metric(self) -> ComparedMetric:
        """The metric that early stopping compares trials by."""
        return compared_metric_of(self.early_stopping, self.objective_metrics)

    @cached_property
    def objective_metrics(self) -> list[ComparedMetric]:
        return [ComparedMetric(one.metric, one.direction, takes_best=one.takes_best) for one in self.objectives]

    @cached_property
    def warnings(self) -> list[Mistake]:
        """What is allowed but may not be what the user means; each at the path of its field."""
        return [
            *scale_warnings(self.space),
            *self.search.warnings_with(self.problem),
            *secret_warnings(self.trainer, self.config),
            *(warnings_about_confirm(self.limits) if self.confirm else ()),
            *self._end_warnings(),
            *warnings_about_comparison(self.early_stopping, self.problem, self.objective_metrics),
        ]

    @model_validator(mode="after")
    def _check_consistency(self, validation: ValidationInfo) -> Self:
        if validation.context is not STORED:
            refuse(type(self).__name__, self._mistakes(validation), {})
        return self

    def _mistakes(self, validation: ValidationInfo) -> Iterator[Mistake]:
        yield from _repeated("objectives", [one.metric for one in self.objectives], "give each metric once")
        yield from _repeated("constraints", [one.metric for one in self.constraints], "give max and min in one entry")
        if not is_accepted("space", validation):
            yield from precision_mistakes(self.space)
        for mistake in mistakes_in_forbidden(self.space):
            yield mistake.under("forbid")
        yield from self.search.mistakes_with(self.problem, accepted=is_accepted("search", validation))
        for mistake in mistakes_in_metric(self.early_stopping, self.objective_metrics):
            yield mistake.under("early_stopping")
        if isinstance(self.early_stopping, Pbt):
            yield from mistakes_in_pbt(self.early_stopping, self.space, self.limits.max_trials)
        seed = {SEED: 0} if self.confirm else {}
        constants, accepted = {**seed, **self.config}, is_accepted("trainer", validation)
        for mistake in mistakes_in_trainer(self.trainer, self.space, constants, accepted=accepted):
            yield mistake.under("trainer")
        if self.confirm is not None:
            yield from self._confirm_mistakes(self.confirm)
        yield from self._limit_mistakes()
        yield from mistakes_in_secrets(self.trainer)
        yield from mistakes_in_retention(self.checkpoints, self.objectives, self.trainer.kind)
        yield from mistakes_in_best_report(
            self.objectives, is_constrained=bool(self.constraints), is_population=self.problem.population
        )
        yield from self._mistakes_in_names()
        yield from mistakes_in_enqueue(self.enqueue, self.space, self.limits.max_trials, self.max_search_trials)

    def _limit_mistakes(self) -> Iterator[Mistake]:
        if self._may_run_without_end and not isinstance(self.early_stopping, Pbt):
            yield from mistakes_without_max_trials(self._other_limits, is_confirmed=self.confirm is not None)
        yield from mistakes_in_limits(self.limits, self.trainer, objective_count=len(self.objectives))

    def _confirm_mistakes(self, confirm: ConfirmSpec) -> Iterator[Mistake]:
        yield from mistakes_in_confirm(
            confirm,
            self.limits,
            self.checkpoints.keep_best_trials,
            objective_count=len(self.objectives),
            is_population=self.problem.population,
        )
        yield from mistakes_in_seed(self.space, self.config)

    def _mistakes_in_names(self) -> Iterator[Mistake]:
        if self.step_metric == "":
            yield Mistake(("step_metric",), "must be the name of a metric, or be left out")
        for name in self.config:
            if name in self.space.root:
                yield Mistake(("config", name), "is also a parameter of the space; rename one of the two")

    def _end_warnings(self) -> Iterator[Mistake]:
        if self._may_run_without_end:
            limits_failures = self.failures.max_failed_trials is not None
            yield from warnings_without_max_trials(self._other_limits, limits_failures=limits_failures)


def _repeated(field: str, metrics: list[str], remedy: str) -> Iterator[Mistake]:
    for index, metric in enumerate(metrics):
        if metric in metrics[:index]:
            yield Mistake((field, index, "metric"), f"{metric!r} appears twice; {remedy}")
