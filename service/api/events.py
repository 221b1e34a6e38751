"""`/v1/experiments/{x}/events`: an experiment's event log, as a stream or in pages."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import Field

from service.api.http.dependencies import Ctx
from service.api.http.pages import Limit, Page, next_cursor
from service.api.http.problems import responses
from service.api.views.rows import RowView
from service.domain.statuses import LIVE_EXPERIMENT
from service.runtime.context import Context
from service.runtime.notifier import wait_for_notification
from service.store.events import events_after
from service.store.lookup import experiment_named
from trainer.wire import Count

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])

POLL_SECONDS = 1.0
"""A stream looks for events this often without a notification: another service process may have written them."""
KEEP_ALIVE_SECONDS = 15.0
BATCH = 500
EVENT_STREAM = "text/event-stream"


class EventView(RowView):
    """`seq` numbers the experiment's events from 1, without gaps; `trial` is the id of the event's trial, if any."""

    seq: int
    kind: str
    trial: str | None = Field(validation_alias="trial_id")
    data: dict[str, Any]
    at: datetime


@router.get(
    "/{experiment}/events",
    response_model=Page[EventView],
    responses={200: {"content": {EVENT_STREAM: {}}}, **responses(404)},
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
        return StreamingResponse(_stream(context, experiment_id, seen), media_type=EVENT_STREAM)
    events, _ = await run_in_threadpool(_events, context, experiment_id, seen, limit + 1)
    return Page(items=events[:limit], next_cursor=next_cursor(events, limit, lambda event: str(event.seq)))


async def _stream(context: Context, experiment_id: str, seen: int) -> AsyncIterator[str]:
    """Ends with the experiment's last event, and when the service shuts down: clients then reconnect."""
    quiet = 0.0
    with context.new_events.subscribe() as changed:
        while not context.stopping.is_set():
            changed.clear()
            events, live = await run_in_threadpool(_events, context, experiment_id, seen, BATCH)
            for event in events:
                seen, quiet = event.seq, 0.0
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
            if not events and not live:
                return
            if not events and not await wait_for_notification(changed, POLL_SECONDS):
                quiet += POLL_SECONDS
                if quiet >= KEEP_ALIVE_SECONDS:
                    quiet = 0.0
                    yield ": still here\n\n"


def _experiment_id(context: Context, experiment: str) -> str:
    with context.database.read() as session:
        return experiment_named(session, experiment).id


def _events(context: Context, experiment_id: str, seen: int, limit: int) -> tuple[list[EventView], bool]:
    """The events after `seen`, and whether more may come."""
    with context.database.read() as session:
        live = experiment_named(session, experiment_id).status in LIVE_EXPERIMENT
        return [EventView.of(row) for row in events_after(session, experiment_id, seen, limit)], live
