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
from service.api.views.missing_metrics import missing_metrics
from service.api.views.rows import View
from service.api.views.trials import TrialView, trial_views
from service.domain.group_fit import kept_for_another, waiting_for, with_kept
from service.domain.statuses import CONTENDERS, ExperimentStatus
from service.mirror.leaderboard import mlflow_url
from service.operations.attempts.scheduling.reservations import ClusterReservation, shown_reservations
from service.runtime.caches.experiment_caches import readable, spec_of, trial_counts, why_unreadable
from service.runtime.context import Context
from service.store.agents import connected_agents, nodes_of
from service.store.attempts import first_tracebacks
from service.store.experiments import may_run_trials, warm_starts_of
from service.store.mirrors import mirrors_of
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from service.store.trials.best_trials import best_trials
from service.store.trials.trial_values import objective_names
from trainer.wire import Kind, Node, WorkerGroup

NO_STORAGE = "the storage: no connected agent can write checkpoints to it; GET /v1/agents says why"
NO_STORAGE_WITH_ROOM = "the storage: no agent with room can write checkpoints to it; GET /v1/agents says why"


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
        """Of a spec that only a later version can read."""
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
    """why it is not mirrored to MLflow, or why its pictures are not there"""
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
    ids, specs = [row.id for row in rows], {row.id: spec_of(row) for row in readable(rows)}
    counts, mirrors = trial_counts(session, rows), mirrors_of(session, ids)
    best = _best_views(session, [row for row in rows if len(objective_names(row)) == 1], counts)
    failed = [row.id for row in rows if row.status == ExperimentStatus.FAILED]
    tracebacks = first_tracebacks(session, failed) if failed else {}
    warm_started = [id_ for id_, spec in specs.items() if spec.search.warm_start]
    warm_starts = warm_starts_of(session, warm_started) if warm_started else {}
    chosen = {id_: spec.chosen_sampler for id_, spec in specs.items()}
    starting = [
        row for row in rows if row.id in specs and row.status == ExperimentStatus.RUNNING and may_run_trials(row)
    ]
    proposing = [row.id for row in starting if not counts[row.id]["queued"]]
    idle = [row for row in starting if not counts[row.id]["running"]]
    missing = _missing_resources(context, session, idle) | _missing_libraries({id_: chosen[id_] for id_ in proposing})
    unreported = missing_metrics(session, rows, counts)

    def view(row: ExperimentRow) -> ExperimentView:
        spec, mirror = specs.get(row.id), mirrors.get(row.id)
        why = row.rule_choice["why"] if row.rule_choice else None
        return ExperimentView(
            id=row.id,
            name=row.name,
            status=row.status,
            ending=row.end_reason is not None and row.ended_at is None,
            end_reason=row.end_reason,
            end_detail=row.end_detail,
            traceback=tracebacks.get(row.id),
            waiting_for=missing.get(row.id),
            missing_metrics=unreported.get(row.id),
            counts=counts[row.id],
            best=best.get(row.id),
            checkpoint_bytes=row.checkpoint_bytes,
            mlflow_url=mlflow_url(mirror, context.settings.mlflow_ui) if mirror else None,
            mlflow_error=mirror.error or mirror.pictures_error if mirror else None,
            priority=row.priority,
            tags=row.tags,
            spec=row.spec,
            sampler=_sampler_view(row, chosen.get(row.id)),
            early_stopping=RuleView.of(
                spec.early_stopping.model_dump(mode="json") if spec else row.spec["early_stopping"], why
            ),
            warnings=SpecWarning.listed(spec.warnings if spec else [Mistake((), why_unreadable(row) or "")]),
            created_at=row.created_at,
            ended_at=row.ended_at,
            cost=CostView.of_sum(row.cost),
            warm_start=warm_starts.get(row.id),
        )

    return [view(row) for row in rows]


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


def _best_views(
    session: Session, rows: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, TrialView]:
    """The best trial of each experiment that has one, by the experiment's id."""
    contended = [row for row in rows if any(counts[row.id][status] for status in CONTENDERS)]
    if not contended:
        return {}
    best = best_trials(session, contended)
    return {view.experiment_id: view for view in trial_views(session, list(best.values()))}


def _missing_libraries(chosen: Mapping[str, ChosenSampler]) -> dict[str, str | None]:
    """By id, what the experiments lack whose next trial this service cannot propose."""
    return {id_: f"a library: {one.name} {lacking}" for id_, one in chosen.items() if (lacking := one.sampler.lacking)}


def _missing_resources(context: Context, session: Session, rows: Sequence[ExperimentRow]) -> dict[str, str | None]:
    """By id, what the experiments lack that should run trials but run none."""
    idle = [row for row in rows if spec_of(row).trainer.kind is not Kind.EXTERNAL]
    if not idle:
        return {}
    agents = connected_agents(session, database_now(session))
    nodes = {agent.name: nodes_of(agent) for agent in agents}
    usable = {agent.name: nodes[agent.name] for agent in agents if agent.storage_error is None}
    if agents and not usable:
        return dict.fromkeys((row.id for row in idle), NO_STORAGE)
    missing = {row.id: _waiting_by_storage(spec_of(row).trainer.group, nodes, usable) for row in idle}
    reserved = shown_reservations(context, session, missing.keys()) if usable else {}
    return missing | {
        row.id: _with_reserved(row, missing[row.id], reserved[row.id]) for row in idle if row.id in reserved
    }


def _with_reserved(row: ExperimentRow, missing: str | None, reserved: ClusterReservation) -> str | None:
    first = reserved.contender.experiment
    if first.id == row.id:
        return with_kept(missing, reserved.agent) if missing else None
    return missing or kept_for_another(spec_of(row).trainer.group, first.name)


def _waiting_by_storage(
    group: WorkerGroup, agents: Mapping[str, Sequence[Node]], usable: Mapping[str, Sequence[Node]]
) -> str | None:
    """Agents get no trial while they cannot write to the storage."""
    missing = waiting_for(group, usable)
    return NO_STORAGE_WITH_ROOM if missing and waiting_for(group, agents) is None else missing
