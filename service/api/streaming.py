"""Streams: an experiment's events, a trial's logs. Each ends when there is nothing more to come."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, StreamingResponse

from service.api.dependencies import Ctx, Limit
from service.api.experiments import named
from service.api.problems import responses
from service.api.trials import trial_named
from service.api.views import EventView, Page
from service.domain.statuses import LIVE_EXPERIMENT, LIVE_TRIAL
from service.errors import NotFound
from service.operations.bell import rung
from service.operations.context import Context
from service.operations.logs import log_files
from service.store.events import events_after

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
    after: Annotated[int, Query(ge=0, description="the number of the last event seen")] = 0,
    cursor: Annotated[int | None, Query(ge=0)] = None,
    limit: Limit = 100,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0)] = None,
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
    rank: Annotated[int | None, Query(ge=0)] = None,
    tail: Annotated[int | None, Query(ge=0, description="the last lines only")] = None,
    attempt: Annotated[int | None, Query(ge=1, description="default: the newest")] = None,
    follow: bool = False,
) -> Response:
    """What the ranks wrote, as plain text; without `rank`, each line says whose it is."""
    number, _ = await run_in_threadpool(_attempt, context, trial, attempt)
    log = Log(context, trial, number, rank)
    if follow:
        return StreamingResponse(_log_stream(context, trial, number, log, tail), media_type="text/plain; charset=utf-8")
    return PlainTextResponse(_tail(await run_in_threadpool(log.read), tail))


def stopping(context: Context) -> bool:
    """Whether the service is on its way down: streams and long polls end, and clients come back."""
    return context.stopping.is_set()


async def _event_stream(context: Context, experiment_id: str, seen: int) -> AsyncIterator[str]:
    quiet = 0.0
    with context.changed.listening() as changed:
        while not stopping(context):
            changed.clear()
            events, live = await run_in_threadpool(_events, context, experiment_id, seen, BATCH)
            for event in events:
                seen, quiet = event.seq, 0.0
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
            if not events and not live:
                return
            if not events and not await rung(changed, LOOK_AGAIN_SECONDS):
                quiet += LOOK_AGAIN_SECONDS
                if quiet >= KEEP_ALIVE_SECONDS:
                    quiet = 0.0
                    yield ": still here\n\n"


async def _log_stream(context: Context, trial: str, attempt: int, log: "Log", tail: int | None) -> AsyncIterator[str]:
    text = _tail(await run_in_threadpool(log.read), tail)
    while not stopping(context):
        if text:
            yield text
        _, live = await run_in_threadpool(_attempt, context, trial, attempt)
        text = await run_in_threadpool(log.read)
        if not live and not text:
            return
        if not text:
            await asyncio.sleep(LOOK_AGAIN_SECONDS / 2)


class Log:
    """An attempt's log files, read on from where the last read ended, whole lines only until `rank` is alone."""

    def __init__(self, context: Context, trial: str, attempt: int, rank: int | None) -> None:
        self._place = (context, trial, attempt, rank)
        self._rank = rank
        self._offsets: dict[Path, int] = {}

    def read(self) -> str:
        return "".join(self._read(rank, path) for rank, path in log_files(*self._place))

    def _read(self, rank: int, path: Path) -> str:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            chunk = file.read()
        whole = chunk[: chunk.rfind(b"\n") + 1] or chunk
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        text = whole.decode(errors="replace")
        if self._rank is not None:
            return text
        return "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())


def _tail(text: str, lines: int | None) -> str:
    if lines is None:
        return text
    return "".join(text.splitlines(keepends=True)[-lines:]) if lines else ""


def _experiment_id(context: Context, experiment: str) -> str:
    with context.database.read() as session:
        return named(session, experiment).id


def _events(context: Context, experiment_id: str, seen: int, limit: int) -> tuple[list[EventView], bool]:
    """The events after `seen`, and whether more may come."""
    with context.database.read() as session:
        live = named(session, experiment_id).status in LIVE_EXPERIMENT
        return [EventView.of(row) for row in events_after(session, experiment_id, seen, limit)], live


def _attempt(context: Context, trial: str, attempt: int | None) -> tuple[int, bool]:
    """The attempt's number, and whether it may write more."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has {row.attempt_count} attempts, not {attempt}")
        number = attempt or row.attempt_count
        return number, row.status in LIVE_TRIAL and number == row.attempt_count
