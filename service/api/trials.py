"""`/v1/trials` and an experiment's trials."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from service.api.http.bodies import JsonOrYaml
from service.api.http.dependencies import Ctx, IdempotencyKey
from service.api.http.pages import TRIAL_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.problems import responses
from service.api.views.trials import TrialDetail, TrialView, trial_detail, trial_views
from service.api.views.trials_csv import trials_csv
from service.domain.statuses import TrialStatus
from service.operations.trials import retry, stop
from service.operations.trials.enqueue import enqueue
from service.specification.enqueued_params import EnqueuedTrial, parse_enqueued
from service.store.lookup import experiment_named, trial_named
from service.store.trials import page_of_trials

router = APIRouter(tags=["trials"])

MAX_CSV_ROWS = 1_000_000

_TRIAL_SCHEMA = EnqueuedTrial.model_json_schema()
_ONE_OR_MORE = {"schema": {"anyOf": [_TRIAL_SCHEMA, {"type": "array", "items": _TRIAL_SCHEMA}]}}
_ENQUEUE = {"required": True, "content": {"application/json": _ONE_OR_MORE, "application/yaml": _ONE_OR_MORE}}


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
    """With `format=csv`, all trials as one table; otherwise page by page."""
    after = from_cursor(TRIAL_KEY, cursor)
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        rows = page_of_trials(
            session,
            row.id,
            status=status,
            by_value=row.spec["objectives"][0]["direction"] if sort == "value" else None,
            after=after,
            limit=MAX_CSV_ROWS if table == "csv" else limit + 1,
        )
        if table == "csv":
            return Response(trials_csv(row, trial_views(session, rows)), media_type="text/csv")
        return Page(
            items=trial_views(session, rows[:limit]),
            next_cursor=next_cursor(rows, limit, lambda trial: to_cursor(TRIAL_KEY, (trial.value, trial.number))),
        )


@router.post(
    "/v1/experiments/{experiment}/trials",
    status_code=201,
    response_model=TrialView | Page[TrialView],
    responses=responses(400, 404, 409, 413, 422),
    openapi_extra={"requestBody": _ENQUEUE},
)
def post_trials(
    experiment: str, document: JsonOrYaml, context: Ctx, idempotency_key: IdempotencyKey = None
) -> TrialView | Page[TrialView]:
    """Enqueues a configuration, or a list of them: they run before any that the search proposes."""
    as_list = isinstance(document, list)
    rows = enqueue(context, experiment, parse_enqueued(document), as_list=as_list, key=idempotency_key)
    with context.database.read() as session:
        views = trial_views(session, rows)
    return Page(items=views) if as_list else views[0]


@router.get("/v1/trials/{trial}", responses=responses(404))
def get_trial(trial: str, context: Ctx) -> TrialDetail:
    """With its attempts: why each ended, with the traceback."""
    with context.database.read() as session:
        return trial_detail(session, trial_named(session, trial))


@router.post("/v1/trials/{trial}/stop", responses=responses(404))
def stop_trial(trial: str, context: Ctx) -> TrialDetail:
    """The trial stops at its next report; an ended one stays as it is."""
    stop.stop_trial(context, trial)
    return get_trial(trial, context)


@router.post("/v1/trials/{trial}/retry", responses=responses(404, 409))
def retry_trial(trial: str, context: Ctx) -> TrialDetail:
    """Queues a failed or stopped trial again; it resumes from its newest checkpoint."""
    retry.retry_trial(context, trial)
    return get_trial(trial, context)
