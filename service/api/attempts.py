"""Calls of the holders of attempts: agents' slots, and callers that run trials themselves. They need a lease token."""

import asyncio

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from service.api.http.dependencies import Ctx, Reporting, Token, bearer_token
from service.api.http.direct_routes import parse_message
from service.api.http.problems import responses
from service.operations.attempts.finish import finish
from service.operations.attempts.logs import store_log
from service.operations.reports.ingest import ReportBatch, current_answer, take_heartbeat
from service.runtime.notifier import wait_for_notification
from trainer.wire import Answer, Decision, Finish, Finished, Heartbeat, LogChunk, Reports

router = APIRouter(tags=["running trials"])


REPORTS = "/v1/trials/{trial}/reports"


@router.post(REPORTS, responses=responses(401, 404, 409, 422))
async def post_reports(trial: str, message: Reports, reporting: Reporting, token: Token) -> Answer:
    """What the training function reported, and what it is to do now. A repeat is harmless."""
    return await reporting.submit(ReportBatch(trial, token, message.reports))


async def serve_reports(request: Request) -> Answer:
    """`post_reports` without FastAPI's routing."""
    token = await bearer_token(request.headers.get("authorization"))
    message = await parse_message(request, Reports)
    return await post_reports(request.path_params["trial"], message, request.app.state.reporting, token)


@router.post("/v1/trials/{trial}/heartbeat", responses=responses(401, 404, 409))
async def post_heartbeat(trial: str, context: Ctx, token: Token, message: Heartbeat | None = None) -> Answer:
    """Extends the lease. With `wait_seconds`, waits for a stop request and answers as soon as there is one."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + (message.wait_seconds if message else 0)
    with context.holder_news.subscribe(trial) as news:
        answer = await run_in_threadpool(take_heartbeat, context, trial, token)
        while answer.decision is Decision.CONTINUE and not context.stopping.is_set():
            if not await wait_for_notification(news, deadline - clock()):
                break
            news.clear()
            answer = await run_in_threadpool(current_answer, context, trial, token)
    return answer


@router.post("/v1/trials/{trial}/logs", status_code=204, responses=responses(401, 409, 422, 507))
def post_log(trial: str, chunk: LogChunk, context: Ctx, token: Token) -> None:
    """A piece of a rank's output. A repeat is harmless."""
    store_log(context, trial, token, chunk)


@router.post("/v1/trials/{trial}/finish", responses=responses(401, 404, 409, 422))
def post_finish(trial: str, message: Finish, context: Ctx, token: Token) -> Finished:
    """Ends the attempt; with `next`, the answer may hold the experiment's next assignment. A repeat is harmless."""
    return finish(context, trial, token, message)
