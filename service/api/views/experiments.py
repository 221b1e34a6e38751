"""Experiments as the API shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel
from sqlalchemy.orm import Session

from search.samplers import ChosenSampler
from service.api.views.trials import TrialView, trial_views
from service.domain.placement import waiting_for
from service.domain.statuses import CONTENDERS, ExperimentStatus
from service.mirror.leaderboard import mlflow_url
from service.operations.experiments.trial_counts import trial_counts
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.store.agents import nodes_of_connected
from service.store.attempts import first_tracebacks
from service.store.best_trials import best_trials
from service.store.experiments import warm_starts_of
from service.store.mirrors import mirrors_of
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.wire import Kind


class SamplerView(BaseModel):
    """`why` explains the choice of `auto`; it is null for a sampler that the spec names."""

    name: str
    options: dict[str, Any]
    why: str | None

    @classmethod
    def of(cls, chosen: ChosenSampler) -> Self:
        return cls(name=chosen.name, options=chosen.sampler.model_dump(mode="json"), why=chosen.reason)


class ExperimentView(BaseModel):
    """`counts` has every trial status; `best` is the best trial so far; `waiting_for` names the missing resources.

    With several objectives `best` is null: `/best` has the Pareto front. `ending` is true while an experiment has an
    end reason and its last trials still run. `traceback` is that of the first failed trial, of an experiment that
    failed. `warm_start` has, for each earlier experiment, how many of its trials the search has learned from, and why
    the others were left out. `sampler` is the one that proposes, with all its options.
    """

    id: str
    name: str
    status: str
    ending: bool
    end_reason: str | None
    end_detail: str | None
    traceback: str | None
    waiting_for: str | None
    counts: dict[str, int]
    best: TrialView | None
    mlflow_url: str | None
    mlflow_error: str | None
    priority: int
    tags: dict[str, Any]
    spec: dict[str, Any]
    sampler: SamplerView
    created_at: datetime
    ended_at: datetime | None
    warm_start: list[dict[str, Any]] | None


def experiment_views(context: Context, session: Session, rows: Sequence[ExperimentRow]) -> list[ExperimentView]:
    """In the order of `rows`. The number of queries does not grow with their number."""
    ids, specs = [row.id for row in rows], {row.id: spec_of(row) for row in rows}
    counts, mirrors = trial_counts(session, rows), mirrors_of(session, ids)
    best = _best_views(session, [row for row in rows if len(specs[row.id].objectives) == 1], counts)
    failed = [row.id for row in rows if row.status == ExperimentStatus.FAILED]
    tracebacks = first_tracebacks(session, failed) if failed else {}
    warm_started = [row.id for row in rows if specs[row.id].search.warm_start]
    warm_starts = warm_starts_of(session, warm_started) if warm_started else {}
    missing = _missing_resources(session, rows, counts)

    def view(row: ExperimentRow) -> ExperimentView:
        spec, mirror = specs[row.id], mirrors.get(row.id)
        return ExperimentView(
            id=row.id,
            name=row.name,
            status=row.status,
            ending=row.end_reason is not None and row.ended_at is None,
            end_reason=row.end_reason,
            end_detail=row.end_detail,
            traceback=tracebacks.get(row.id),
            waiting_for=missing.get(row.id),
            counts=counts[row.id],
            best=best.get(row.id),
            mlflow_url=mlflow_url(mirror, context.settings.mlflow_ui) if mirror else None,
            mlflow_error=mirror.error if mirror else None,
            priority=row.priority,
            tags=row.tags,
            spec=row.spec,
            sampler=SamplerView.of(spec.search.chosen_for(spec.problem)),
            created_at=row.created_at,
            ended_at=row.ended_at,
            warm_start=warm_starts.get(row.id),
        )

    return [view(row) for row in rows]


def _best_views(
    session: Session, rows: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, TrialView]:
    """The best trial of each experiment that has one, by the experiment's id."""
    contended = [row for row in rows if any(counts[row.id][status] for status in CONTENDERS)]
    if not contended:
        return {}
    best = best_trials(session, contended)
    return {view.experiment_id: view for view in trial_views(session, list(best.values()))}


def _missing_resources(
    session: Session, rows: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str | None]:
    """By id, what the experiments lack that should run trials but run none."""
    idle = [
        row
        for row in rows
        if row.status == ExperimentStatus.RUNNING
        and not row.end_reason
        and not counts[row.id]["running"]
        and spec_of(row).trainer.kind is not Kind.EXTERNAL
    ]
    if not idle:
        return {}
    agents = nodes_of_connected(session, database_now(session))
    return {row.id: waiting_for(spec_of(row).trainer.scaling, agents) for row in idle}
