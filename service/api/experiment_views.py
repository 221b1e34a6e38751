"""Experiments as the API shows them: however many they are, with the same few queries."""

from collections.abc import Sequence
from functools import cache

from sqlalchemy.orm import Session

from service.api.views import ExperimentView, trial_views
from service.domain.placement import waiting_for
from service.domain.statuses import ExperimentStatus
from service.mirror.leaderboard import mlflow_url
from service.operations.experiments.best import best_trials
from service.operations.experiments.trial_counts import trial_counts
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.store.agents import nodes_of_connected
from service.store.attempts import first_tracebacks
from service.store.experiments import warm_starts_of
from service.store.mirrors import mirrors_of
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.wire import Kind, Node


def views_of(context: Context, session: Session, rows: Sequence[ExperimentRow]) -> list[ExperimentView]:
    """In their order."""
    ids, specs = [row.id for row in rows], {row.id: spec_of(row) for row in rows}
    counts, mirrors = trial_counts(session, rows), mirrors_of(session, ids)
    best = best_trials(session, [row for row in rows if len(specs[row.id].objectives) == 1])
    shown = {view.experiment_id: view for view in trial_views(session, list(best.values()))}
    failed = [row.id for row in rows if row.status == ExperimentStatus.FAILED]
    tracebacks = first_tracebacks(session, failed) if failed else {}
    taught = [row.id for row in rows if specs[row.id].search.warm_start]
    warm_starts = warm_starts_of(session, taught) if taught else {}

    @cache
    def agents() -> dict[str, list[Node]]:
        return nodes_of_connected(session, database_now(session))

    def waits_for(row: ExperimentRow) -> str | None:
        if row.status != ExperimentStatus.RUNNING or row.end_reason or counts[row.id]["running"]:
            return None
        trainer = specs[row.id].trainer
        return None if trainer.kind is Kind.EXTERNAL else waiting_for(trainer.scaling, agents())

    def view(row: ExperimentRow) -> ExperimentView:
        mirror = mirrors.get(row.id)
        return ExperimentView.of(
            row,
            counts=counts[row.id],
            best=shown.get(row.id),
            traceback=tracebacks.get(row.id),
            waiting_for=waits_for(row),
            mlflow_url=mlflow_url(mirror, context.settings.mlflow_ui),
            mlflow_error=mirror.error if mirror else None,
            warm_start=warm_starts.get(row.id),
        )

    return [view(row) for row in rows]
