"""`/v1/experiments`: create, look at, and steer them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api.experiment_views import views_of
from service.api.http.bodies import read_either, read_submission
from service.api.http.cursors import EXPERIMENT_PLACE, from_cursor, to_cursor
from service.api.http.dependencies import Ctx, Cursor, IdempotencyKey, Limit
from service.api.http.problems import responses
from service.api.views import ExperimentView, Page
from service.domain.statuses import ExperimentStatus
from service.errors import BadRequest
from service.operations.experiments import control
from service.operations.experiments.change import change
from service.operations.experiments.create import create_experiment
from service.runtime.context import Context
from service.specification.changes import CHANGEABLE
from service.specification.parser import parse_spec
from service.store.experiments import page_of_experiments
from service.store.lookup import experiment_named

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])

_SPEC = {"schema": {"$ref": "#/components/schemas/ExperimentSpec"}}
_FORM = {
    "schema": {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "string", "format": "binary", "description": "the spec, as YAML or JSON"},
            "code": {"type": "string", "format": "binary", "description": "one .py, a zip, or several .py"},
        },
    }
}
_BODY = {
    "required": True,
    "content": {"application/json": _SPEC, "application/yaml": _SPEC, "multipart/form-data": _FORM},
}
_CHANGES = {"schema": {"type": "object", "description": f"what may be changed: {', '.join(CHANGEABLE)}"}}
_PATCH = {
    "required": True,
    "content": {"application/merge-patch+json": _CHANGES, "application/json": _CHANGES, "application/yaml": _CHANGES},
}


@router.post("", status_code=201, responses=responses(400, 409, 413, 422), openapi_extra={"requestBody": _BODY})
async def post_experiment(
    request: Request, response: Response, context: Ctx, idempotency_key: IdempotencyKey = None
) -> ExperimentView:
    """Starts an experiment from a spec (JSON or YAML), or from a form with `spec` and `code`."""
    document = await read_submission(request, context)
    row = await run_in_threadpool(lambda: create_experiment(context, parse_spec(document), idempotency_key))
    response.headers["Location"] = f"/v1/experiments/{row.name}"
    return await run_in_threadpool(_shown, context, row.id)


@router.get("", responses=responses(422))
def get_experiments(
    context: Ctx,
    status: ExperimentStatus | None = None,
    tag: Annotated[str | None, Query(description="name:value")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[ExperimentView]:
    """Newest first."""
    if tag is not None and ":" not in tag:
        raise BadRequest(f"tag must be name:value, as in team:vision, not {tag!r}")
    name, _, value = (tag or "").partition(":")
    after = from_cursor(EXPERIMENT_PLACE, cursor)
    with context.database.read() as session:
        rows = page_of_experiments(
            session, status=status, tag=(name, value) if tag else None, after=after, limit=limit + 1
        )
        items = views_of(context, session, rows[:limit])
    last = rows[limit - 1] if len(rows) > limit else None
    next_cursor = to_cursor(EXPERIMENT_PLACE, (last.created_at, last.id)) if last else None
    return Page(items=items, next_cursor=next_cursor)


@router.get("/{experiment}", responses=responses(404))
def get_experiment(experiment: str, context: Ctx) -> ExperimentView:
    """By name or id."""
    return _shown(context, experiment)


@router.patch("/{experiment}", responses=responses(400, 404, 409, 413, 422), openapi_extra={"requestBody": _PATCH})
async def patch_experiment(experiment: str, request: Request, context: Ctx) -> ExperimentView:
    """Changes a live experiment: limits, failures, priority, tags, early stopping, targets; a space gets narrower."""
    patch = await read_either(request)
    row = await run_in_threadpool(change, context, experiment, patch)
    return await run_in_threadpool(_shown, context, row.id)


@router.post("/{experiment}/pause", responses=responses(404, 409))
def pause(experiment: str, context: Ctx) -> ExperimentView:
    """Starts no more trials; running ones finish."""
    return _shown(context, control.pause(context, experiment).id)


@router.post("/{experiment}/resume", responses=responses(404, 409))
def resume(experiment: str, context: Ctx) -> ExperimentView:
    return _shown(context, control.resume(context, experiment).id)


@router.post("/{experiment}/stop", responses=responses(404))
def stop(experiment: str, context: Ctx) -> ExperimentView:
    """Running trials leave at their next report, and end as `stopped`."""
    return _shown(context, control.stop(context, experiment).id)


@router.post("/{experiment}/cancel", responses=responses(404))
def cancel(experiment: str, context: Ctx) -> ExperimentView:
    """Stop without grace: the workers are ended now."""
    return _shown(context, control.cancel(context, experiment).id)


@router.delete("/{experiment}", status_code=204, responses=responses(409))
def delete(experiment: str, context: Ctx) -> None:
    """Forgets a finished experiment; checkpoints and MLflow's runs stay."""
    control.delete(context, experiment)


def _shown(context: Context, name_or_id: str) -> ExperimentView:
    with context.database.read() as session:
        return views_of(context, session, [experiment_named(session, name_or_id)])[0]
