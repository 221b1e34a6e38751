"""The checkpoints of trials: where they are, how large they are, and which of them are kept."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from service.api.http.archive_response import PART, WHOLE, IfRange, Range, archive_response
from service.api.http.dependencies import Ctx, ExperimentName, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.pages import NUMBER_KEY, REPORT_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route
from service.api.views.checkpoint_retention import CheckpointPlan
from service.api.views.trials import CheckpointView
from service.errors import Busy, NotFound, RangeNotSatisfiable, StorageUnavailable, WrongState
from service.operations.checkpoints import pin
from service.operations.checkpoints.checkpoint_archive import open_archive
from service.operations.checkpoints.retention_plan import facts_of, plan_of
from service.operations.checkpoints.retention_rules import RetentionVerdict
from service.runtime.caches.experiment_caches import spec_of
from service.store.checkpoints.checkpoints import page_of_checkpoints
from service.store.lookup import experiment_named, trial_named
from trainer.wire import MAX_COUNT

router = APIRouter(tags=["trials"], route_class=Route, responses=error_responses(NotFound))

Step = Annotated[int, Path(ge=0, le=MAX_COUNT, description="the step that the checkpoint was saved at")]

_INSTEAD = "preview with this value instead of the spec's"


@router.get("/v1/trials/{trial}/checkpoints")
def list_checkpoints(trial: TrialId, context: Ctx, cursor: Cursor = None, limit: Limit = 1000) -> Page[CheckpointView]:
    """The checkpoints that the trial has reported, newest first, with those that retention has removed."""
    [step] = from_cursor(NUMBER_KEY, cursor) or (MAX_COUNT + 1,)
    with context.database.read() as session:
        rows = page_of_checkpoints(session, trial_named(session, trial).id, before_step=step, limit=limit + 1)
    return Page(
        items=[CheckpointView.of(row) for row in rows[:limit]],
        next_cursor=next_cursor(rows, limit, lambda row: to_cursor(NUMBER_KEY, (row.step,))),
    )


@router.put("/v1/trials/{trial}/checkpoints/{step}/pin", responses=error_responses(WrongState))
def pin_checkpoint(trial: TrialId, step: Step, context: Ctx) -> CheckpointView:
    """Pins the checkpoint: nothing but the deletion of its experiment removes it. A repeat is harmless."""
    return CheckpointView.of(pin.pin(context, trial, step))


@router.delete("/v1/trials/{trial}/checkpoints/{step}/pin", responses=error_responses(WrongState))
def unpin_checkpoint(trial: TrialId, step: Step, context: Ctx) -> CheckpointView:
    """Unpins the checkpoint: retention then treats it as any other of its trial. A repeat is harmless."""
    return CheckpointView.of(pin.unpin(context, trial, step))


@router.get(
    "/v1/trials/{trial}/checkpoints/{step}/archive",
    response_class=Response,
    responses={200: WHOLE, 206: PART, **error_responses(WrongState, RangeNotSatisfiable, Busy, StorageUnavailable)},
)
async def get_checkpoint_archive(
    trial: TrialId, step: Step, context: Ctx, range_header: Range = None, if_range: IfRange = None
) -> Response:
    """The files of the checkpoint as a tar archive, read from the storage.

    An interrupted download resumes with `Range` and `If-Range`, as `curl -C -` does.
    """
    return await archive_response(context, partial(open_archive, context, trial, step), range_header, if_range)


@router.get("/v1/experiments/{experiment}/checkpoints/plan")
def get_checkpoint_plan(
    experiment: ExperimentName,
    context: Ctx,
    keep_best_trials: Annotated[int | None, Query(ge=1, le=MAX_COUNT, description=_INSTEAD)] = None,
    keep_last: Annotated[bool | None, Query(description=_INSTEAD)] = None,
    cursor: Cursor = None,
    limit: Limit = 1000,
) -> CheckpointPlan:
    """A dry run of retention: what would be removed now, and why each other checkpoint is kept. Changes nothing.

    With parameters, what other rules than those of the spec would do.
    """
    after = from_cursor(REPORT_KEY, cursor) or (-1, -1)
    tried = {"keep_best_trials": keep_best_trials, "keep_last": keep_last}
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        rules = spec_of(row).checkpoints
        changes = {name: value for name, value in tried.items() if value is not None}
        facts = facts_of(session, row, rules.model_copy(update=changes))
    plan = plan_of(facts)
    rest = [one for one in plan.verdicts if (one.checkpoint.trial, one.checkpoint.step) > after]

    def cursor_of(one: RetentionVerdict) -> str:
        return to_cursor(REPORT_KEY, (one.checkpoint.trial, one.checkpoint.step))

    return CheckpointPlan.of(plan, rest[:limit], next_cursor(rest, limit, cursor_of))
