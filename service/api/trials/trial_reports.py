"""A trial's reports: its curves, and those that are no part of them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.http.dependencies import Ctx, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.pages import (
    NUMBER_KEY,
    REPORT_KEY,
    Cursor,
    Limit,
    Page,
    from_cursor,
    next_cursor,
    to_cursor,
)
from service.api.http.routes import Route
from service.api.views.rows import RowView
from service.errors import NotFound
from service.store.lookup import trial_named
from service.store.reports import reports_of, uncounted_reports_of

router = APIRouter(prefix="/v1/trials", tags=["trials"], route_class=Route, responses=error_responses(NotFound))


class ReportView(RowView):
    """One point of a trial's curves."""

    step: int
    """its position on the curve"""
    attempt: int
    """the number of the attempt that reported first"""
    sequence: int
    """its number within the attempt"""
    metrics: dict[str, Any]
    """values by name"""
    at: datetime
    """when it was stored"""
    counted: bool = True
    """whether it is part of the trial's curve"""
    reason: str | None = None
    """why it is no part of the curve"""


class UncountedReportView(ReportView):
    """A report that is no part of the trial's curves."""

    counted: bool = False
    """always false"""


@router.get("/{trial}/reports")
def list_reports(
    trial: TrialId,
    context: Ctx,
    counted: Annotated[bool, Query(description="false: the reports that are no part of the curve")] = True,
    cursor: Cursor = None,
    limit: Limit = 1000,
) -> Page[ReportView]:
    """The trial's curves, by step.

    With `counted=false`, the reports that were made after a decision to stop, because the service was away: by attempt
    and sequence, each with the reason.
    """
    with context.database.read() as session:
        trial_id = trial_named(session, trial).id
        if not counted:
            after = from_cursor(REPORT_KEY, cursor) or (0, 0)
            uncounted = uncounted_reports_of(session, trial_id, after, limit + 1)
            return Page(
                items=[UncountedReportView.of(row) for row in uncounted[:limit]],
                next_cursor=next_cursor(
                    uncounted, limit, lambda row: to_cursor(REPORT_KEY, (row.attempt, row.sequence))
                ),
            )
        [step] = from_cursor(NUMBER_KEY, cursor) or (-1,)
        rows = reports_of(session, trial_id, step, limit + 1)
    return Page(
        items=[ReportView.of(row) for row in rows[:limit]],
        next_cursor=next_cursor(rows, limit, lambda row: to_cursor(NUMBER_KEY, (row.step,))),
    )
