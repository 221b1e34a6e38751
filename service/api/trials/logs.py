"""`/v1/trials/{t}/logs`: the output of a trial's ranks, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from search.mistakes import Mistake
from service.api.http.dependencies import Ctx, TrialId
from service.api.http.error_responses import error_responses
from service.api.http.queries import Whole
from service.api.http.routes import Route
from service.api.http.security.revocation import RevocableStream
from service.api.http.stream_headers import UNBUFFERED
from service.api.trials.log_start import MAX_START_LENGTH, START_HEADER, START_PATTERN, LogStart
from service.errors import Invalid, NotFound
from service.operations.attempts.log_state import NO_ATTEMPT, LogState, log_state
from service.operations.attempts.rank_logs import NO_STARTS, Log
from service.runtime.context import Context

router = APIRouter(prefix="/v1/trials", tags=["trials"], route_class=Route)

POLL_SECONDS = 0.5
KEEP_ALIVE_HEADER = "Paceline-Keep-Alive"
KEEP_ALIVE = "\0"
KEEP_ALIVE_PAUSES = 30
"""After so many of them something is sent to a caller that wants to be kept alive."""


@router.get("/{trial}/logs", response_class=PlainTextResponse, responses=error_responses(NotFound))
async def get_logs(
    trial: TrialId,
    context: Ctx,
    rank: Annotated[Whole | None, Query(description="of one rank only")] = None,
    tail: Annotated[
        Whole | None,
        Query(description="only the last lines of each rank; of longer lines, 100 kB for each line asked for"),
    ] = None,
    start: Annotated[
        str | None,
        Query(
            pattern=START_PATTERN,
            max_length=MAX_START_LENGTH,
            description="instead of `tail`: the start that an earlier answer with `tail` gave in its header "
            f"`{START_HEADER}`; returns the same lines of the same attempt, and newer ones",
        ),
    ] = None,
    attempt: Annotated[
        int | None, Query(ge=1, description="the number of the attempt; default: the newest; earlier logs are kept")
    ] = None,
    follow: Annotated[
        bool, Query(description="wait for more output until the attempt ends; of a queued trial, of its first attempt")
    ] = False,
    keep_alive: Annotated[
        bool,
        Header(
            alias=KEEP_ALIVE_HEADER,
            description="`true`, with `follow`: a NUL character, which no log has, every 15 seconds without output; "
            "the answer has the header, too",
        ),
    ] = False,
) -> Response:
    """What the ranks wrote, as plain text; without `rank`, each line starts with the number of its rank."""
    if follow:
        context.followers.check()
    begin = None if start is None else LogStart.parsed(start)
    state = await run_in_threadpool(log_state, context, trial, _attempt_of(begin, attempt))

    def open_log(number: int) -> Log:
        is_tail = begin is None and state.number  # what is written after the call is no part of its tail
        starts = begin.offsets if begin is not None else NO_STARTS
        return Log(context, trial, number, rank=rank, tail=tail if is_tail else None, starts=starts)

    log = await run_in_threadpool(open_log, state.number)
    if follow:
        stream = _followed(context, trial, state, log, open_log, _Silence(is_broken=keep_alive))
    else:
        stream = _whole(log, state)
    headers = dict(UNBUFFERED) if follow else {}
    if follow and keep_alive:
        headers[KEEP_ALIVE_HEADER] = "true"
    begun = str(LogStart(state.number, log.starts))
    if tail is not None and len(begun) <= MAX_START_LENGTH:
        headers[START_HEADER] = begun
    return RevocableStream(stream, headers=headers, media_type="text/plain; charset=utf-8")


def _attempt_of(start: LogStart | None, attempt: int | None) -> int | None:
    """Raises Invalid where the call names two attempts."""
    named = start.attempt if start is not None else None
    if attempt and named and attempt != named:
        why = f"is {attempt}, but start is of attempt {named}; leave out one of the two"
        raise Invalid([Mistake(("attempt",), why)])
    return attempt or named


async def _whole(log: Log, state: LogState) -> AsyncIterator[str]:
    while text := await run_in_threadpool(log.read, whole_lines=False):
        yield text
    if state.note:
        yield state.note


class _Silence:
    """The pauses between two looks at a log. `is_broken`: something is sent at times, although there is no output."""

    def __init__(self, *, is_broken: bool) -> None:
        self._is_broken = is_broken
        self._count = 0

    async def pause(self) -> str:
        """Return what is to be sent after it."""
        await asyncio.sleep(POLL_SECONDS)
        self._count += 1
        return KEEP_ALIVE if self._is_broken and self._count % KEEP_ALIVE_PAUSES == 0 else ""


async def _followed(
    context: Context, trial: str, state: LogState, log: Log, open_log: Callable[[int], Log], silence: _Silence
) -> AsyncIterator[str]:
    """Ends when the attempt has ended and all of its output was sent, and when the service shuts down.

    Also when the trial is deleted, which may be before its output was sent.
    """
    with context.followers.one(), suppress(NotFound):
        if not state.number:
            while not state.number and state.is_live and not context.stopping.is_set():
                if sign := await silence.pause():
                    yield sign
                state = await run_in_threadpool(log_state, context, trial, NO_ATTEMPT)
            log = await run_in_threadpool(open_log, state.number)
        while not context.stopping.is_set():
            text = await run_in_threadpool(log.read, whole_lines=state.is_live)
            if text:
                yield text
            elif state.is_live:
                if sign := await silence.pause():
                    yield sign
                # Before the next read, which then gets all that was written until the attempt ended.
                state = await run_in_threadpool(log_state, context, trial, state.number)
            else:
                if state.note:
                    yield state.note
                return
