"""What early stopping decided on a trial."""

from fastapi import APIRouter

from service.api.http.dependencies import Ctx, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.pages import NUMBER_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.views.decisions import DecisionView
from service.errors import NotFound
from service.store.decisions import decisions_of
from service.store.lookup import trial_named

router = APIRouter(prefix="/v1/trials", tags=["trials"], route_class=Route, responses=error_responses(NotFound))


@router.get("/{trial}/decisions")
def list_decisions(trial: TrialId, context: Ctx, cursor: Cursor = None, limit: Limit = 1000) -> Page[DecisionView]:
    """Each decision of early stopping on the trial, with its reason, in their order."""
    [last] = from_cursor(NUMBER_KEY, cursor) or (0,)
    with context.database.read() as session:
        rows = decisions_of(session, trial_named(session, trial).id, after=last, limit=limit + 1)
    return Page(
        items=[DecisionView.of(row) for row in rows[:limit]],
        next_cursor=next_cursor(rows, limit, lambda row: to_cursor(NUMBER_KEY, (row.id,))),
    )
