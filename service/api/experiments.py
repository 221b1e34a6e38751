"""`/v1/experiments`: create experiments, read them, change and control them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from search.mistakes import Mistake
from service.api.http.bodies import JsonOrYaml, SpecAndCode, Submission
from service.api.http.dependencies import Ctx, IdempotencyKey
from service.api.http.pages import EXPERIMENT_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.problems import responses
from service.api.views.experiments import ExperimentView, experiment_views
from service.domain.statuses import ExperimentStatus
from service.errors import BadRequest, Invalid
from service.operations.experiments import control
from service.operations.experiments.change import change
from service.operations.experiments.create import create_experiment
from service.operations.packages.storage import store_files
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
_CHANGES = {
    "schema": {"type": "object", "description": f"the fields to change; these can be changed: {', '.join(CHANGEABLE)}"}
}
_PATCH = {
    "required": True,
    "content": {"application/merge-patch+json": _CHANGES, "application/json": _CHANGES, "application/yaml": _CHANGES},
}


@router.post("", status_code=201, responses=responses(400, 409, 413, 422), openapi_extra={"requestBody": _BODY})
def post_experiment(
    submission: SpecAndCode, response: Response, context: Ctx, idempotency_key: IdempotencyKey = None
) -> ExperimentView:
    """Starts an experiment from a spec (JSON or YAML), or from a form with `spec` and `code`."""
    document = _with_package(context, submission)
    row = create_experiment(context, parse_spec(document), idempotency_key)
    response.headers["Location"] = f"/v1/experiments/{row.name}"
    return _view(context, row.id)


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
    after = from_cursor(EXPERIMENT_KEY, cursor)
    with context.database.read() as session:
        rows = page_of_experiments(
            session, status=status, tag=(name, value) if tag else None, after=after, limit=limit + 1
        )
        return Page(
            items=experiment_views(context, session, rows[:limit]),
            next_cursor=next_cursor(rows, limit, lambda row: to_cursor(EXPERIMENT_KEY, (row.created_at, row.id))),
        )


@router.get("/{experiment}", responses=responses(404))
def get_experiment(experiment: str, context: Ctx) -> ExperimentView:
    """By name or id."""
    return _view(context, experiment)


@router.patch("/{experiment}", responses=responses(400, 404, 409, 413, 422), openapi_extra={"requestBody": _PATCH})
def patch_experiment(experiment: str, patch: JsonOrYaml, context: Ctx) -> ExperimentView:
    """Changes limits, failures, priority, tags, early stopping or targets of a live experiment, or narrows its space.

    An experiment that a limit has ended runs again when that limit is raised.
    """
    return _view(context, change(context, experiment, patch).id)


@router.post("/{experiment}/pause", responses=responses(404, 409))
def pause(experiment: str, context: Ctx) -> ExperimentView:
    """Starts no new trials; running ones finish."""
    return _view(context, control.pause(context, experiment).id)


@router.post("/{experiment}/resume", responses=responses(404, 409))
def resume(experiment: str, context: Ctx) -> ExperimentView:
    """Starts trials again after a pause."""
    return _view(context, control.resume(context, experiment).id)


@router.post("/{experiment}/stop", responses=responses(404))
def stop(experiment: str, context: Ctx) -> ExperimentView:
    """Running trials stop at their next report, and end as `stopped`."""
    return _view(context, control.stop(context, experiment).id)


@router.post("/{experiment}/cancel", responses=responses(404))
def cancel(experiment: str, context: Ctx) -> ExperimentView:
    """Stops without grace: the workers are killed."""
    return _view(context, control.cancel(context, experiment).id)


@router.delete("/{experiment}", status_code=204, responses=responses(409))
def delete(experiment: str, context: Ctx) -> None:
    """Deletes an ended experiment; its checkpoints and its runs in MLflow stay."""
    control.delete(context, experiment)


def _with_package(context: Context, submission: Submission) -> Any:
    """The spec's document, naming the package of the code that was sent with it."""
    document = submission.document
    trainer = document.setdefault("trainer", {}) if isinstance(document, dict) else None
    if not submission.code or not isinstance(trainer, dict):  # `parse_spec` says what is wrong with the document
        return document
    if "package" in trainer:
        message = "must be absent when code is sent with the spec; leave out one of the two"
        raise Invalid([Mistake(("trainer", "package"), message)])
    trainer["package"] = store_files(context, submission.code).id
    return document


def _view(context: Context, name_or_id: str) -> ExperimentView:
    with context.database.read() as session:
        return experiment_views(context, session, [experiment_named(session, name_or_id)])[0]
