"""TensorBoard's event files, as the training functions wrote them."""

from functools import partial

from fastapi import APIRouter, Response

from service.api.http.archive_response import PART, WHOLE, IfRange, Range, archive_response
from service.api.http.dependencies import Ctx, ExperimentName, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.routes import Route
from service.errors import Busy, NotFound, RangeNotSatisfiable, StorageUnavailable
from service.operations.checkpoints.event_files import open_experiments_event_files, open_trials_event_files

router = APIRouter(tags=["trials"], route_class=Route, responses=error_responses(NotFound))
_RESPONSES = {200: WHOLE, 206: PART, **error_responses(RangeNotSatisfiable, Busy, StorageUnavailable)}


@router.get("/v1/trials/{trial}/tensorboard/archive", response_class=Response, responses=_RESPONSES)
async def get_trials_event_files(
    trial: TrialId, context: Ctx, range_header: Range = None, if_range: IfRange = None
) -> Response:
    """The event files that the trial's workers wrote for TensorBoard, as a tar archive: a directory for each attempt.

    A download that was cut off goes on with `Range` and `If-Range`, as `curl -C -` does.
    """
    return await archive_response(context, partial(open_trials_event_files, context, trial), range_header, if_range)


@router.get("/v1/experiments/{experiment}/tensorboard/archive", response_class=Response, responses=_RESPONSES)
async def get_experiments_event_files(
    experiment: ExperimentName, context: Ctx, range_header: Range = None, if_range: IfRange = None
) -> Response:
    """The event files of all trials, as a tar archive: a directory for each attempt.

    Unpacked, it is a directory for `tensorboard --logdir`. It resumes as a trial's does.
    """
    return await archive_response(
        context, partial(open_experiments_event_files, context, experiment), range_header, if_range
    )
