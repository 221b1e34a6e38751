"""`/v1/trials` and an experiment's trials."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from service.api.http.bodies.body_reader import JSON
from service.api.http.bodies.document_body import YAML, JsonOrYaml
from service.api.http.dependencies import Ctx, ExperimentName, IdempotencyKey, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.pages import MAX_NUMBER, TRIAL_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.views.trials import TrialDetail, TrialView, trial_detail, trial_views
from service.api.views.trials_csv import trials_csv
from service.domain.statuses import TrialStatus
from service.errors import Conflict, NotFound, TooMuchWork, WrongState
from service.operations.trials import retry, stop
from service.operations.trials.enqueue import enqueue
from service.specification.enqueued_params import MAX_ENQUEUED, parse_enqueued
from service.store.lookup import experiment_named, trial_named
from service.store.trials.trial_pages import page_of_trials

router = APIRouter(tags=["trials"], route_class=Route)

MAX_CSV_ROWS = 1_000_000

_ENQUEUED = {"$ref": "#/components/schemas/EnqueuedTrial"}
_SEVERAL = {"type": "array", "items": _ENQUEUED, "minItems": 1, "maxItems": MAX_ENQUEUED}
_ONE_OR_MORE = {"schema": {"anyOf": [_ENQUEUED, _SEVERAL]}}
_CONFIGURATIONS = JsonOrYaml(parse_enqueued)
_BODY = {"required": True, "content": {JSON: _ONE_OR_MORE, YAML: _ONE_OR_MORE}}


@router.get(
    "/v1/experiments/{experiment}/trials",
    response_model=Page[TrialView],
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **error_responses(NotFound)},
)
def list_trials(
    experiment: ExperimentName,
    context: Ctx,
    status: Annotated[TrialStatus | None, Query(description="only trials with this status")] = None,
    number: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="only the trial with this number")] = None,
    sort: Annotated[Literal["number", "value"], Query(description="`value`: best first objective first")] = "number",
    table: Annotated[
        Literal["json", "csv"], Query(alias="format", description="`csv`: all trials as one table, instead of pages")
    ] = "json",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[TrialView] | Response:
    """An experiment's trials; with `format=csv`, the first million of them as one table."""
    after = from_cursor(TRIAL_KEY, cursor)
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        rows = page_of_trials(
            session,
            row.id,
            status=status,
            number=number,
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
    responses=error_responses(NotFound, Conflict, WrongState, TooMuchWork),
    openapi_extra={"requestBody": _BODY},
)
def enqueue_trials(
    experiment: ExperimentName,
    document: Annotated[Any, Depends(_CONFIGURATIONS)],
    response: Response,
    context: Ctx,
    idempotency_key: IdempotencyKey = None,
) -> TrialView | Page[TrialView]:
    """Enqueues a configuration, or a list of them: they run before any that the search proposes."""
    as_list = isinstance(document, list)
    rows = enqueue(context, experiment, parse_enqueued(document), as_list=as_list, key=idempotency_key)
    with context.database.read() as session:
        views = trial_views(session, rows)
    one, several = f"/v1/trials/{views[0].id}", f"/v1/experiments/{experiment}/trials"
    response.headers["Location"] = several if as_list else one
    return Page(items=views) if as_list else views[0]


@router.get("/v1/trials/{trial}", responses=error_responses(NotFound))
def get_trial(trial: TrialId, context: Ctx) -> TrialDetail:
    """A trial with its attempts: why each ended, with the traceback."""
    with context.database.read() as session:
        return trial_detail(session, trial_named(session, trial))


@router.post("/v1/trials/{trial}/stop", responses=error_responses(NotFound))
def stop_trial(trial: TrialId, context: Ctx) -> TrialDetail:
    """The trial stops at its next report; an ended one stays as it is."""
    stop.stop_trial(context, trial)
    return get_trial(trial, context)


@router.post("/v1/trials/{trial}/retry", responses=error_responses(NotFound, WrongState))
def retry_trial(trial: TrialId, context: Ctx) -> TrialDetail:
    """Queues a failed or stopped trial again; it resumes from its newest checkpoint."""
    retry.retry_trial(context, trial)
    return get_trial(trial, context)
