"""`/v1/experiments`: create experiments, read them, change and control them."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator

from search.mistakes import Mistake
from service.api.experiments.mirror_wait import wait_for_mirror
from service.api.http.bodies.body_reader import JSON
from service.api.http.bodies.document_body import MERGE_PATCH, YAML, JsonOrYaml
from service.api.http.bodies.submission_body import SpecAndCode
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx, ExperimentName, IdempotencyKey
from service.api.http.error_responses import error_responses
from service.api.http.pages import EXPERIMENT_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.views.experiments import ExperimentView, SpecWarning, experiment_views
from service.domain.statuses import ExperimentStatus
from service.errors import Conflict, Invalid, NameTaken, NotFound, TooMuchWork, WrongState
from service.operations.experiments import change, creation, lifecycle
from service.operations.experiments.submission import Submission, parse_submission
from service.operations.packages.submitted_code import check_code, submitted_code
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.experiments import page_of_experiments
from service.store.lookup import experiment_named
from service.store.tables import ExperimentRow
from trainer.process_log.context import log_context

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=Route)

_SPEC = {"schema": {"$ref": "#/components/schemas/ExperimentSpec"}}
_FORM = {
    "schema": {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "string", "format": "binary", "description": "the spec, as YAML or JSON"},
            "code": {"type": "string", "format": "binary", "description": "a zip, or the files themselves"},
        },
    }
}
_BODY = {
    "required": True,
    "content": {JSON: _SPEC, YAML: _SPEC, "multipart/form-data": _FORM},
}
_CHANGES = {"schema": {"$ref": "#/components/schemas/ExperimentChanges"}}
_CHANGE = JsonOrYaml(max_bytes=200_000)
SMALL_CODE_BYTES = 20_000
"""A worker process checks what is larger, because parsing code holds the interpreter."""

_PATCH = {"required": True, "content": {MERGE_PATCH: _CHANGES, JSON: _CHANGES, YAML: _CHANGES}}


@router.post(
    "",
    status_code=201,
    responses=error_responses(Conflict, NameTaken, TooMuchWork),
    openapi_extra={"requestBody": _BODY},
)
async def create_experiment(
    request: Request, submission: SpecAndCode, response: Response, context: Ctx, idempotency_key: IdempotencyKey = None
) -> ExperimentView:
    """Starts an experiment from a spec (JSON or YAML), or from a form with `spec` and `code`."""
    spec = await run_in_threadpool(parse_submission, context, submission)
    key, earlier = idempotency_key, None
    if key is not None:  # before the code, whose mistakes are answered after a conflict
        earlier = await run_in_threadpool(creation.created_with, context, key, spec)
    try:
        warnings = await _code_warnings(request, context, spec, submission)
    except Invalid:
        if earlier is None:
            raise
        warnings = []  # the experiment exists, whatever has become of its package
    view = await run_in_threadpool(_created, context, earlier, spec, warnings, key)
    response.headers["Location"] = f"/v1/experiments/{view.name}"
    return view


async def _code_warnings(
    request: Request, context: Context, spec: ExperimentSpec, submission: Submission
) -> list[Mistake]:
    """Return the warnings, those of a repeated call among them. Raises Invalid."""
    if spec.trainer.package is None:
        return []
    code = await run_in_threadpool(submitted_code, context, spec.trainer, spec.trainer.package, submission.package)
    check = partial(check_code, spec.trainer, code, has_params=bool(spec.space.root))
    is_large = code.size > SMALL_CODE_BYTES
    return await (computed(request, context.compute, check) if is_large else run_in_threadpool(check))


def _created(
    context: Context, earlier: ExperimentRow | None, spec: ExperimentSpec, warnings: list[Mistake], key: str | None
) -> ExperimentView:
    row = earlier or creation.store_experiment(context, spec, key)
    log_context.add(experiment=row.id)
    view = _view(context, row)
    return view.model_copy(update={"warnings": [*view.warnings, *SpecWarning.listed(warnings)]})


def _check_tag(tag: str | None) -> str | None:
    if tag is not None and ":" not in tag:
        raise ValueError("must be name:value")
    return tag


@router.get("")
def list_experiments(
    context: Ctx,
    status: Annotated[ExperimentStatus | None, Query(description="only experiments with this status")] = None,
    tag: Annotated[
        str | None,
        AfterValidator(_check_tag),
        Query(description="only experiments with this tag, as `name:value`", json_schema_extra={"pattern": ":"}),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[ExperimentView]:
    """The experiments, newest first."""
    after = from_cursor(EXPERIMENT_KEY, cursor)
    with context.database.read() as session:
        rows = page_of_experiments(session, status=status, tag=tag, after=after, limit=limit + 1)
        return Page(
            items=experiment_views(context, session, rows[:limit]),
            next_cursor=next_cursor(rows, limit, lambda row: to_cursor(EXPERIMENT_KEY, (row.created_at, row.id))),
        )


@router.get("/{experiment}", responses=error_responses(NotFound))
def get_experiment(experiment: ExperimentName, context: Ctx) -> ExperimentView:
    """An experiment: its spec, status, counts of trials and best trial."""
    with context.database.read() as session:
        return experiment_views(context, session, [experiment_named(session, experiment)])[0]


@router.patch(
    "/{experiment}", responses=error_responses(NotFound, WrongState, TooMuchWork), openapi_extra={"requestBody": _PATCH}
)
def change_experiment(
    experiment: ExperimentName, patch: Annotated[Any, Depends(_CHANGE)], context: Ctx
) -> ExperimentView:
    """Changes limits, failures, priority, tags, early stopping, retention or targets, or narrows the space.

    Of an ended experiment tags, priority and retention can change. One that a limit has ended runs again when that
    limit is raised.
    """
    return _view(context, change.change(context, experiment, patch))


@router.post("/{experiment}/pause", responses=error_responses(NotFound, WrongState))
def pause_experiment(experiment: ExperimentName, context: Ctx) -> ExperimentView:
    """Starts no new trials; running ones finish."""
    return _view(context, lifecycle.pause(context, experiment))


@router.post("/{experiment}/resume", responses=error_responses(NotFound, WrongState))
def resume_experiment(experiment: ExperimentName, context: Ctx) -> ExperimentView:
    """Starts trials again after a pause, or after `stop` or `cancel`: what these ended then goes on."""
    return _view(context, lifecycle.resume(context, experiment))


@router.post("/{experiment}/stop", responses=error_responses(NotFound))
def stop_experiment(experiment: ExperimentName, context: Ctx) -> ExperimentView:
    """Running trials stop at their next report, and end as `stopped`."""
    return _view(context, lifecycle.stop(context, experiment))


@router.post("/{experiment}/cancel", responses=error_responses(NotFound))
def cancel_experiment(experiment: ExperimentName, context: Ctx) -> ExperimentView:
    """Stops without grace: the workers are killed."""
    return _view(context, lifecycle.cancel(context, experiment))


@router.delete("/{experiment}", status_code=204, responses=error_responses(NotFound, WrongState))
async def delete_experiment(
    experiment: ExperimentName,
    context: Ctx,
    keep_checkpoints: Annotated[bool, Query(description="leave the checkpoints on the storage")] = False,
) -> None:
    """Deletes an ended experiment with its logs and checkpoints; its runs in MLflow stay.

    The agents that ran it delete the checkpoints. Those of `kind: external` are not Paceline's to delete. If the mirror
    to MLflow lacks events of the experiment, the call waits for it, up to ten seconds.
    """
    await wait_for_mirror(context, experiment)
    await run_in_threadpool(lifecycle.delete, context, experiment, keep_checkpoints=keep_checkpoints)


def _view(context: Context, written: ExperimentRow) -> ExperimentView:
    """The view of a row as this call has written it: the row need not be read again."""
    with context.database.read() as session:
        return experiment_views(context, session, [written])[0]
