"""`/v1/trials` and an experiment's trials: what ran, how it went, and why."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from service.api.http.bodies import read_either
from service.api.http.cursors import TRIAL_PLACE, from_cursor, to_cursor
from service.api.http.dependencies import Ctx, Cursor, IdempotencyKey, Limit
from service.api.http.problems import responses
from service.api.trials_csv import trials_csv
from service.api.views import CheckpointView, DecisionView, Page, ReportView, TrialDetail, TrialView, trial_views
from service.domain.statuses import TrialStatus
from service.operations.experiments import control
from service.operations.trials import retry
from service.operations.trials.enqueue import enqueue
from service.runtime.context import Context
from service.specification.enqueued_params import Given, parse_given
from service.store.lookup import experiment_named, trial_named
from service.store.tables import CheckpointRow, DecisionRow
from service.store.trials import page_of_trials, reports_of
from trainer.wire import Count

router = APIRouter(tags=["trials"])

_ONE_OR_MORE = {"schema": {"anyOf": [Given.model_json_schema(), {"type": "array", "items": Given.model_json_schema()}]}}
_GIVEN = {"required": True, "content": {"application/json": _ONE_OR_MORE, "application/yaml": _ONE_OR_MORE}}


@router.get("/v1/experiments/{experiment}/trials", response_model=Page[TrialView], responses=responses(404, 422))
def get_trials(
    experiment: str,
    context: Ctx,
    status: TrialStatus | None = None,
    sort: Annotated[Literal["number", "value"], Query(description="`value`: best first objective first")] = "number",
    table: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[TrialView] | Response:
    after = from_cursor(TRIAL_PLACE, cursor)
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        rows = page_of_trials(
            session,
            row.id,
            status=status,
            by_value=row.spec["objectives"][0]["direction"] if sort == "value" else None,
            after=after,
            limit=1_000_000 if table == "csv" else limit + 1,
        )
        if table == "csv":
            return Response(trials_csv(row, trial_views(session, rows)), media_type="text/csv")
        last = rows[limit - 1] if len(rows) > limit else None
        next_cursor = to_cursor(TRIAL_PLACE, (last.value, last.number)) if last else None
        return Page(items=trial_views(session, rows[:limit]), next_cursor=next_cursor)


@router.post(
    "/v1/experiments/{experiment}/trials",
    status_code=201,
    response_model=TrialView | Page[TrialView],
    responses=responses(400, 404, 409, 413, 422),
    openapi_extra={"requestBody": _GIVEN},
)
async def post_trials(
    experiment: str, request: Request, context: Ctx, idempotency_key: IdempotencyKey = None
) -> TrialView | Page[TrialView]:
    """Enqueues a given configuration, or a list of them: they are tried before any that the search proposes."""
    document = await read_either(request)
    return await run_in_threadpool(_enqueued, context, experiment, document, idempotency_key)


@router.get("/v1/trials/{trial}", responses=responses(404))
def get_trial(trial: str, context: Ctx) -> TrialDetail:
    """With its attempts: why each ended, with the traceback."""
    with context.database.read() as session:
        return TrialDetail.read(session, trial_named(session, trial))


@router.get("/v1/trials/{trial}/reports", responses=responses(404))
def get_reports(
    trial: str, context: Ctx, cursor: Annotated[Count | None, Query()] = None, limit: Limit = 1000
) -> Page[ReportView]:
    """The curve, by step."""
    with context.database.read() as session:
        rows = reports_of(session, trial_named(session, trial).id, -1 if cursor is None else cursor, limit + 1)
    more = len(rows) > limit
    return Page(
        items=[ReportView.of(row) for row in rows[:limit]], next_cursor=str(rows[limit - 1].step) if more else None
    )


@router.get("/v1/trials/{trial}/decisions", responses=responses(404))
def get_decisions(trial: str, context: Ctx) -> Page[DecisionView]:
    """What early stopping said, each with its reason."""
    with context.database.read() as session:
        query = select(DecisionRow).where(DecisionRow.trial_id == trial_named(session, trial).id)
        rows = session.scalars(query.order_by(DecisionRow.id)).all()
    return Page(items=[DecisionView.of(row) for row in rows])


@router.get("/v1/trials/{trial}/checkpoints", responses=responses(404))
def get_checkpoints(trial: str, context: Ctx) -> Page[CheckpointView]:
    """Newest first."""
    with context.database.read() as session:
        query = select(CheckpointRow).where(CheckpointRow.trial_id == trial_named(session, trial).id)
        rows = session.scalars(query.order_by(CheckpointRow.step.desc())).all()
    return Page(items=[CheckpointView.of(row) for row in rows])


@router.post("/v1/trials/{trial}/stop", responses=responses(404))
def stop_trial(trial: str, context: Ctx) -> TrialDetail:
    """It leaves at its next report; a finished one stays as it is."""
    control.stop_trial(context, trial)
    return get_trial(trial, context)


@router.post("/v1/trials/{trial}/retry", responses=responses(404, 409))
def retry_trial(trial: str, context: Ctx) -> TrialDetail:
    """Queues a failed or stopped trial again; it goes on from its newest checkpoint."""
    retry.retry_trial(context, trial)
    return get_trial(trial, context)


def _enqueued(context: Context, experiment: str, document: Any, key: str | None) -> TrialView | Page[TrialView]:
    as_list = isinstance(document, list)
    rows = enqueue(context, experiment, parse_given(document), as_list=as_list, key=key)
    with context.database.read() as session:
        views = trial_views(session, rows)
    return Page(items=views) if as_list else views[0]
