"""`/v1/trials/{t}/logs`: the output of a trial's ranks, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, StreamingResponse

from service.api.http.dependencies import Ctx
from service.api.http.problems import responses
from service.domain.statuses import LIVE_TRIAL
from service.errors import NotFound
from service.operations.attempts.logs import Log
from service.runtime.context import Context
from service.store.lookup import trial_named
from trainer.wire import Count, Rank

router = APIRouter(prefix="/v1/trials", tags=["trials"])

POLL_SECONDS = 0.5


@router.get("/{trial}/logs", response_class=PlainTextResponse, responses=responses(404))
async def get_logs(
    trial: str,
    context: Ctx,
    rank: Annotated[Rank | None, Query()] = None,
    tail: Annotated[
        Count | None,
        Query(description="only the last lines of each rank; of longer lines, 100 kB for each line asked for"),
    ] = None,
    attempt: Annotated[int | None, Query(ge=1, description="default: the newest")] = None,
    follow: bool = False,
) -> Response:
    """What the ranks wrote, as plain text; without `rank`, each line starts with the number of its rank."""
    number, live = await run_in_threadpool(_attempt, context, trial, attempt)
    log = await run_in_threadpool(lambda: Log(context, trial, number, rank=rank, tail=tail))
    stream = _followed(context, trial, number, log, live=live) if follow else _whole(log)
    return StreamingResponse(stream, media_type="text/plain; charset=utf-8")


async def _whole(log: Log) -> AsyncIterator[str]:
    while text := await run_in_threadpool(log.read, whole_lines=False):
        yield text


async def _followed(context: Context, trial: str, attempt: int, log: Log, *, live: bool) -> AsyncIterator[str]:
    """Ends when the attempt has ended and all of its output was sent, and when the service shuts down."""
    while not context.stopping.is_set():
        text = await run_in_threadpool(log.read, whole_lines=live)
        if text:
            yield text
        elif live:
            await asyncio.sleep(POLL_SECONDS)
            # Before the next read, which then gets all that was written until the attempt ended.
            _, live = await run_in_threadpool(_attempt, context, trial, attempt)
        else:
            return


def _attempt(context: Context, trial: str, attempt: int | None) -> tuple[int, bool]:
    """The number of the attempt, by default the newest, and whether it may write more."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has {row.attempt_count} attempts; there is no attempt {attempt}")
        number = attempt or row.attempt_count
        return number, row.status in LIVE_TRIAL and number == row.attempt_count
