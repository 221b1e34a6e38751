"""`/v1/experiments/{x}/events`: an experiment's event log, as server-sent events (SSE) or in pages.

The streams, with their keep-alives, follow the feeds of `service.runtime.events.event_feeds`.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool

from service.api.http.dependencies import Ctx, ExperimentName, Feeds
from service.api.http.error_responses import error_responses
from service.api.http.pages import NUMBER_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.queries import Whole
from service.api.http.routes import Route
from service.api.http.security.revocation import RevocableStream
from service.api.http.stream_headers import UNBUFFERED
from service.api.views.events import EventView, event_view
from service.errors import NotFound
from service.runtime.context import Context
from service.runtime.events.event_feeds import EventFeeds
from service.store.events import events_after
from service.store.lookup import experiment_named
from service.store.tables import EventRow, ExperimentRow

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=Route)

EVENT_STREAM = "text/event-stream"


@router.get(
    "/{experiment}/events",
    response_model=Page[EventView],
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}, **error_responses(NotFound)},
)
async def list_events(
    experiment: ExperimentName,
    context: Ctx,
    feeds: Feeds,
    follow: Annotated[bool, Query(description="`true`: server-sent events; `false`: pages of JSON")] = True,
    after: Annotated[Whole, Query(description="the number of the last event seen")] = 0,
    cursor: Cursor = None,
    limit: Limit = 100,
    last_event_id: Annotated[
        Whole | None, Header(alias="Last-Event-ID", description="as `after`; browsers send it when they reconnect")
    ] = None,
) -> Page[EventView] | Response:
    """Server-sent events until the experiment has ended, resumable with `Last-Event-ID`; `follow=false`: JSON pages."""
    experiment_id, newest = await run_in_threadpool(_log_of, context, experiment)
    # An event that the log does not have is of another log: of an experiment that had the same name before, or from
    # before the database was restored. A later page follows the one before, whatever the log has by then.
    given = (0, after, last_event_id or 0)
    [seen] = from_cursor(NUMBER_KEY, cursor) or (max(number for number in given if number <= newest),)
    if follow:
        context.followers.check()
        stream = _stream(context, feeds, experiment_id, seen)
        return RevocableStream(stream, headers=UNBUFFERED, media_type=EVENT_STREAM)
    events = await run_in_threadpool(_events, context, experiment_id, seen, limit + 1)
    return Page(
        items=events[:limit], next_cursor=next_cursor(events, limit, lambda event: to_cursor(NUMBER_KEY, (event.seq,)))
    )


async def _stream(context: Context, feeds: EventFeeds, experiment_id: str, seen: int) -> AsyncIterator[bytes]:
    """Ends with the experiment's last event; earlier if the service shuts down, or the database has lost events.

    Clients then reconnect.
    """
    with context.followers.one(), feeds.follow(experiment_id) as (feed, woken):
        loss_count = feed.loss_count
        while not context.stopping.is_set() and feed.loss_count == loss_count:
            woken.clear()
            quiet_count = feed.quiet_count
            if feed.holds_all_after(seen):
                chunk, seen = feed.after(seen)
            elif feed.is_loaded:
                chunk, seen = await feeds.older(experiment_id, seen)
            else:
                chunk = b""
            if chunk:
                yield chunk
            elif feed.is_loaded and not feed.is_live:
                return
            else:
                await woken.wait()
                if feed.quiet_count != quiet_count:
                    yield b": still here\n\n"


def server_sent(experiment: ExperimentRow, row: EventRow) -> bytes:
    """The event as part of a stream."""
    event = event_view(experiment, row)
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode()


def _log_of(context: Context, experiment: str) -> tuple[str, int]:
    """The experiment's id, and the number of its newest event."""
    with context.database.read() as session:
        row = experiment_named(session, experiment)
        return row.id, row.event_count


def _events(context: Context, experiment_id: str, seen: int, limit: int) -> list[EventView]:
    with context.database.read() as session:
        row = experiment_named(session, experiment_id)
        return [event_view(row, event) for event in events_after(session, experiment_id, seen, limit)]
