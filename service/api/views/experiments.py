"""Experiments as the API shows them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from sqlalchemy.orm import Session

from search.mistakes import Mistake
from search.samplers import ChosenSampler
from search.samplers.registry import OWN_SAMPLERS
from search.samplers.sampler_spec import Missing
from service.api.views.costs import CostView
from service.api.views.experiment_facts import ExperimentFacts, load_facts
from service.api.views.rows import View
from service.api.views.trials import TrialView
from service.mirror.runs.leaderboard import mlflow_url
from service.runtime.caches.experiment_caches import why_unreadable
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.tables import ExperimentRow


class SamplerView(View):
    """The sampler that proposes configurations."""

    name: str
    """the sampler's name"""
    options: dict[str, Any]
    """all of its options"""
    why: str | None
    """why `auto` chose it; null for a sampler that the spec names"""

    @classmethod
    def of(cls, chosen: ChosenSampler) -> Self:
        return cls(name=chosen.name, options=chosen.sampler.model_dump(mode="json"), why=chosen.reason)

    @classmethod
    def as_stored(cls, search: Mapping[str, Any]) -> Self:
        """The sampler of a spec that only a later version can read."""
        return cls(name=search["sampler"], options=search.get("options") or {}, why=None)


class RuleView(View):
    """The early-stopping rule that decides on reports."""

    name: str
    """the rule's name; `auto` until one is chosen"""
    options: dict[str, Any]
    """all of its options"""
    why: str | None
    """why the service chose it; null for a rule that a user names"""

    @classmethod
    def of(cls, rule: Mapping[str, Any], why: str | None) -> Self:
        """`rule` is JSON, perhaps of a spec that only a later version can read."""
        return cls(name=rule["rule"], options={name: rule[name] for name in rule if name != "rule"}, why=why)


class SpecWarning(View):
    """What the spec allows but may not mean, with the `path` of its field."""

    path: str
    """the path of the field"""
    message: str
    """what it may not mean"""

    @classmethod
    def listed(cls, warnings: Iterable[Mistake]) -> list[Self]:
        return [cls(path=one.where, message=one.message) for one in warnings]


class ExperimentView(View):
    """An experiment: its spec, its state and its best trial."""

    id: str
    """the experiment's id"""
    name: str
    """its name"""
    status: str
    """`running`, `paused`, `completed`, `failed` or `stopped`"""
    ending: bool
    """whether it has an end reason and its last trials still run"""
    end_reason: str | None
    """why it ended"""
    end_detail: str | None
    """the same in words"""
    traceback: str | None
    """of the first trial that failed, if the experiment failed"""
    waiting_for: str | None
    """what its next trial lacks: resources, or a library that the sampler needs"""
    missing_metrics: str | None
    """the metrics of objectives and constraints that its first trials have not reported so far, and what they report"""
    counts: dict[str, int]
    """the number of trials in each status"""
    best: TrialView | None
    """the best trial so far; null with several objectives, whose Pareto front `/best` has"""
    checkpoint_bytes: int
    """the size of all checkpoints of its trials, as far as it is known"""
    mlflow_url: str | None
    """its page in MLflow"""
    mlflow_error: str | None
    """why it is not mirrored to MLflow, or why its charts are not there"""
    priority: int
    """experiments with a higher one get free resources first"""
    tags: dict[str, Any]
    """names and values to find it by"""
    spec: dict[str, Any]
    """the whole specification, with defaults"""
    sampler: SamplerView
    """the sampler that proposes"""
    early_stopping: RuleView
    """the rule that stops trials"""
    warnings: list[SpecWarning]
    """what the spec allows but may not mean"""
    created_at: datetime
    """when it was submitted"""
    ended_at: datetime | None
    """when its last trial ended"""
    cost: CostView | None
    """where the time of its attempts went, all together; null before the first of them has ended"""
    warm_start: list[dict[str, Any]] | None
    """for each earlier experiment, how many of its trials the search learned from, and why the others were left out"""


def experiment_views(context: Context, session: Session, rows: Sequence[ExperimentRow]) -> list[ExperimentView]:
    """In the order of `rows`. The number of queries does not grow with their number."""
    facts = load_facts(context, session, rows)
    return [_view(row, facts, context.settings.mlflow_ui) for row in rows]


def _view(row: ExperimentRow, facts: ExperimentFacts, mlflow_ui: str | None) -> ExperimentView:
    spec, mirror = facts.specs.get(row.id), facts.mirrors.get(row.id)
    return ExperimentView(
        id=row.id,
        name=row.name,
        status=row.status,
        ending=row.end_reason is not None and row.ended_at is None,
        end_reason=row.end_reason,
        end_detail=row.end_detail,
        traceback=facts.tracebacks.get(row.id),
        waiting_for=facts.waiting_for.get(row.id),
        missing_metrics=facts.missing_metrics.get(row.id),
        counts=facts.counts[row.id],
        best=facts.best.get(row.id),
        checkpoint_bytes=row.checkpoint_bytes,
        mlflow_url=mlflow_url(mirror, mlflow_ui) if mirror else None,
        mlflow_error=mirror.error or mirror.pictures_error if mirror else None,
        priority=row.priority,
        tags=row.tags,
        spec=row.spec,
        sampler=_sampler_view(row, spec.chosen_sampler if spec else None),
        early_stopping=_rule_view(row, spec),
        warnings=SpecWarning.listed(spec.warnings if spec else [Mistake((), why_unreadable(row) or "")]),
        created_at=row.created_at,
        ended_at=row.ended_at,
        cost=CostView.of_sum(row.cost),
        warm_start=facts.warm_starts.get(row.id),
    )


def _rule_view(row: ExperimentRow, spec: ExperimentSpec | None) -> RuleView:
    rule = spec.early_stopping.model_dump(mode="json") if spec else row.spec["early_stopping"]
    return RuleView.of(rule, row.rule_choice["why"] if row.rule_choice else None)


def _sampler_view(row: ExperimentRow, chosen: ChosenSampler | None) -> SamplerView:
    """As stored where this service cannot read the spec, or lacks the sampler's package as it was."""
    if chosen is None or isinstance(chosen.sampler, Missing):
        return SamplerView.as_stored(row.spec["search"])
    try:
        return SamplerView.of(chosen)
    except (Exception, SystemExit):
        if chosen.name in OWN_SAMPLERS:
            raise
        return SamplerView.as_stored(row.spec["search"])  # the warnings say what a sampler of another package raises
