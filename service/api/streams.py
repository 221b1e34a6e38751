"""Streams: an experiment's events, a trial's logs. Each ends when there is nothing more to come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, StreamingResponse

from service.api.http.dependencies import Ctx, Limit
from service.api.http.problems import responses
from service.api.views import EventView, Page
from service.domain.statuses import LIVE_EXPERIMENT, LIVE_TRIAL
from service.errors import NotFound
from service.operations.attempts.logs import Log
from service.runtime.context import Context
from service.runtime.notifier import wait_for_notification
from service.store.events import events_after
from service.store.lookup import experiment_named, trial_named
from trainer.wire import Count, Rank

router = APIRouter()

LOOK_AGAIN_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
BATCH = 500
EVENTS_TYPE = "text/event-stream"


@router.get(
    "/v1/experiments/{experiment}/events",
    tags=["experiments"],
    response_model=Page[EventView],
    responses={200: {"content": {EVENTS_TYPE: {}}}, **responses(404)},
)
async def get_events(
    experiment: str,
    context: Ctx,
    follow: bool = True,
    after: Annotated[Count, Query(description="the number of the last event seen")] = 0,
    cursor: Annotated[Count | None, Query()] = None,
    limit: Limit = 100,
    last_event_id: Annotated[Count | None, Header(alias="Last-Event-ID")] = None,
) -> Page[EventView] | Response:
    """Server-sent events until the experiment has ended, resumable with `Last-Event-ID`; `follow=false`: JSON pages."""
    seen = max(after, cursor or 0, last_event_id or 0)
    experiment_id = await run_in_threadpool(_experiment_id, context, experiment)
    if follow:
        return StreamingResponse(_event_stream(context, experiment_id, seen), media_type=EVENTS_TYPE)
    events, _ = await run_in_threadpool(_events, context, experiment_id, seen, limit + 1)
    more = len(events) > limit
    return Page(items=events[:limit], next_cursor=str(events[limit - 1].seq) if more else None)


@router.get("/v1/trials/{trial}/logs", tags=["trials"], response_class=PlainTextResponse, responses=responses(404))
async def get_logs(
    trial: str,
    context: Ctx,
    rank: Annotated[Rank | None, Query()] = None,
    tail: Annotated[Count | None, Query(description="the last lines of each rank only")] = None,
    attempt: Annotated[int | None, Query(ge=1, description="default: the newest")] = None,
    follow: bool = False,
) -> Response:
    """What the ranks wrote, as plain text; without `rank`, each line says whose it is."""
    number, live = await run_in_threadpool(_attempt, context, trial, attempt)
    log = await run_in_threadpool(lambda: Log(context, trial, number, rank=rank, tail=tail))
    stream = _log_stream(context, trial, number, log, live=live) if follow else _whole_log(log)
    return StreamingResponse(stream, media_type="text/plain; charset=utf-8")


def stopping(context: Context) -> bool:
    """Whether the service is on its way down: streams and long polls end, and clients come back."""
    return context.stopping.is_set()


async def _event_stream(context: Context, experiment_id: str, seen: int) -> AsyncIterator[str]:
    quiet = 0.0
    with context.new_events.subscribe() as changed:
        while not stopping(context):
            changed.clear()
            events, live = await run_in_threadpool(_events, context, experiment_id, seen, BATCH)
            for event in events:
                seen, quiet = event.seq, 0.0
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
            if not events and not live:
                return
            if not events and not await wait_for_notification(changed, LOOK_AGAIN_SECONDS):
                quiet += LOOK_AGAIN_SECONDS
                if quiet >= KEEP_ALIVE_SECONDS:
                    quiet = 0.0
                    yield ": still here\n\n"


async def _whole_log(log: Log) -> AsyncIterator[str]:
    while text := await run_in_threadpool(log.read, whole_lines=False):
        yield text


async def _log_stream(context: Context, trial: str, attempt: int, log: Log, *, live: bool) -> AsyncIterator[str]:
    while not stopping(context):
        text = await run_in_threadpool(log.read, whole_lines=live)
        if text:
            yield text
        elif live:
            await asyncio.sleep(LOOK_AGAIN_SECONDS / 2)
            # Before the last reads: what was written until the end is read after it.
            _, live = await run_in_threadpool(_attempt, context, trial, attempt)
        else:
            return


def _experiment_id(context: Context, experiment: str) -> str:
    with context.database.read() as session:
        return experiment_named(session, experiment).id


def _events(context: Context, experiment_id: str, seen: int, limit: int) -> tuple[list[EventView], bool]:
    """The events after `seen`, and whether more may come."""
    with context.database.read() as session:
        live = experiment_named(session, experiment_id).status in LIVE_EXPERIMENT
        return [EventView.of(row) for row in events_after(session, experiment_id, seen, limit)], live


def _attempt(context: Context, trial: str, attempt: int | None) -> tuple[int, bool]:
    """The attempt's number, and whether it may write more."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has {row.attempt_count} attempts, not {attempt}")
        number = attempt or row.attempt_count
        return number, row.status in LIVE_TRIAL and number == row.attempt_count
