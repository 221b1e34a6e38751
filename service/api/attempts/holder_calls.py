"""Calls of the holders of attempts: agents' slots, and callers that run trials themselves. They need a lease token."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from service.api.attempts.finish_wait import finish_caught_up
from service.api.attempts.report_ingest import BODY, REPORTS, serve_reports
from service.api.http.bodies.body_reader import MAX_BODY_BYTES
from service.api.http.bodies.json_body import JsonBody
from service.api.http.dependencies import Ctx, LeaseToken, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.headers import services_header
from service.api.http.routes import LeaseRoute
from service.errors import LeaseLost, NotFound
from service.operations.attempts.heartbeat import current_order, take_heartbeat
from service.operations.attempts.rank_logs import store_log
from service.runtime.events.notifier import wait_for_notification
from trainer.wire import Answer, Decision, Finish, Finished, Heartbeat, LogChunk

router = APIRouter(tags=["running trials"], route_class=LeaseRoute, responses=error_responses(NotFound, LeaseLost))

_HEARTBEAT = JsonBody(Heartbeat, absent=Heartbeat(), leased=True)
_LOG = JsonBody(LogChunk, max_bytes=MAX_BODY_BYTES, leased=True)
_REPORT_FIRST = "report it first: the value of a trial is that of its last report"
_OPTUNAS_TELL = {
    **dict.fromkeys(("value", "values", "metrics"), _REPORT_FIRST),
    "state": "use outcome: completed, failed, or stopped (also for a pruned trial)",
}
_FINISH = JsonBody(Finish, instead=_OPTUNAS_TELL, leased=True)


@router.post(REPORTS, openapi_extra=BODY.openapi)
async def send_reports(request: Request, trial: TrialId, token: LeaseToken) -> Answer:  # noqa: ARG001 - for OpenAPI
    """What the training function reported, and what it is to do now. A repeat is harmless."""
    return await serve_reports(request)  # `DirectReports` has done so already


@router.post("/v1/trials/{trial}/heartbeat", openapi_extra=_HEARTBEAT.openapi)
async def send_heartbeat(
    trial: TrialId,
    message: Annotated[Heartbeat, Depends(_HEARTBEAT)],
    context: Ctx,
    token: LeaseToken,
    response: Response,
) -> Answer:
    """Extends the lease. With `wait_seconds`, waits for a stop request and answers as soon as there is one.

    The header `Paceline-Services` names the addresses of all services that serve the same experiments.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + message.wait_seconds
    response.headers.update(services_header(context))
    with context.holder_changes.subscribe(trial) as changes:
        order = await context.threads.brief(take_heartbeat, context, trial, token, message)
        while order.decision is Decision.CONTINUE and not context.stopping.is_set():
            if not await wait_for_notification(changes, deadline - clock()):
                break
            changes.clear()
            order = await context.threads.brief(current_order, context, trial, token)
    return order


@router.post("/v1/trials/{trial}/logs", status_code=204, openapi_extra=_LOG.openapi)
async def send_log(trial: TrialId, chunk: Annotated[LogChunk, Depends(_LOG)], context: Ctx, token: LeaseToken) -> None:
    """Stores a piece of a rank's output. A repeat is harmless."""
    await context.threads.assigning(store_log, context, trial, token, chunk)


@router.post("/v1/trials/{trial}/finish", openapi_extra=_FINISH.openapi)
async def finish_attempt(
    trial: TrialId, message: Annotated[Finish, Depends(_FINISH)], context: Ctx, token: LeaseToken
) -> Finished:
    """Ends the attempt; with `next`, the answer may hold the experiment's next assignment. A repeat is harmless."""
    return await finish_caught_up(context, trial, token, message)
