"""What happened to a trial: its reports, early stopping's decisions, its checkpoints."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import select

from service.api.http.dependencies import Ctx
from service.api.http.pages import Limit, Page, next_cursor
from service.api.http.problems import responses
from service.api.views.decisions import DecisionView
from service.api.views.rows import RowView
from service.api.views.trials import CheckpointView
from service.store.lookup import trial_named
from service.store.tables import CheckpointRow, DecisionRow
from service.store.trials import reports_of
from trainer.wire import Count

router = APIRouter(prefix="/v1/trials", tags=["trials"])


class ReportView(RowView):
    step: int
    attempt: int
    sequence: int
    metrics: dict[str, Any]
    at: datetime


@router.get("/{trial}/reports", responses=responses(404))
def get_reports(
    trial: str, context: Ctx, cursor: Annotated[Count | None, Query()] = None, limit: Limit = 1000
) -> Page[ReportView]:
    """The trial's curves, by step."""
    with context.database.read() as session:
        rows = reports_of(session, trial_named(session, trial).id, -1 if cursor is None else cursor, limit + 1)
    return Page(
        items=[ReportView.of(row) for row in rows[:limit]],
        next_cursor=next_cursor(rows, limit, lambda row: str(row.step)),
    )


@router.get("/{trial}/decisions", responses=responses(404))
def get_decisions(trial: str, context: Ctx) -> Page[DecisionView]:
    """Each decision of early stopping, with its reason."""
    with context.database.read() as session:
        query = select(DecisionRow).where(DecisionRow.trial_id == trial_named(session, trial).id)
        rows = session.scalars(query.order_by(DecisionRow.id)).all()
    return Page(items=[DecisionView.of(row) for row in rows])


@router.get("/{trial}/checkpoints", responses=responses(404))
def get_checkpoints(trial: str, context: Ctx) -> Page[CheckpointView]:
    """Newest first."""
    with context.database.read() as session:
        query = select(CheckpointRow).where(CheckpointRow.trial_id == trial_named(session, trial).id)
        rows = session.scalars(query.order_by(CheckpointRow.step.desc())).all()
    return Page(items=[CheckpointView.of(row) for row in rows])
