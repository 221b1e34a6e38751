"""`/v1/trials/{t}/logs`: the output of a trial's ranks, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from service.api.http.dependencies import Ctx, TrialId
from service.api.http.openapi_errors import problems
from service.api.http.queries import Whole
from service.api.http.routes import Route
from service.api.http.security.revocation import RevocableStream
from service.api.http.unbuffered import UNBUFFERED
from service.domain.statuses import LIVE_TRIAL
from service.errors import NotFound
from service.operations.age_retention import removal_note
from service.operations.attempts.rank_logs import Log, missing_end
from service.runtime.context import Context
from service.store.attempts import attempts_of
from service.store.lookup import trial_named
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow

router = APIRouter(prefix="/v1/trials", tags=["trials"], route_class=Route)

POLL_SECONDS = 0.5
KEEP_ALIVE_HEADER = "Paceline-Keep-Alive"
KEEP_ALIVE = "\0"
KEEP_ALIVE_PAUSES = 30
"""After so many of them something is sent to a caller that wants to be kept alive."""

START_HEADER = "Paceline-Log-Start"
MAX_START_LENGTH = 4000
"""Of the header, which is left out where it would be longer: proxies limit headers and URLs to 8 kB or more."""
STARTS = r"([0-9]{1,6}:[0-9]{1,15}(,[0-9]{1,6}:[0-9]{1,15})*)?"


@router.get("/{trial}/logs", response_class=PlainTextResponse, responses=problems(NotFound))
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
            pattern=f"^{STARTS}$",
            max_length=MAX_START_LENGTH,
            description=f"instead of `tail`: where an earlier answer with `tail` began, as its header `{START_HEADER}` "
            "said, so that the same lines come again, and what was written since",
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
    state = await run_in_threadpool(_state, context, trial, attempt)

    def open_log(number: int) -> Log:
        is_tail = start is None and state.number  # what is written after the call is no part of its tail
        return Log(context, trial, number, rank=rank, tail=tail if is_tail else None, starts=_starts(start))

    log = await run_in_threadpool(open_log, state.number)
    if follow:
        stream = _followed(context, trial, state, log, open_log, _Silence(is_broken=keep_alive))
    else:
        stream = _whole(log, state)
    headers = dict(UNBUFFERED) if follow else {}
    if follow and keep_alive:
        headers[KEEP_ALIVE_HEADER] = "true"
    begins = ",".join(f"{one}:{offset}" for one, offset in log.starts.items())
    if tail is not None and len(begins) <= MAX_START_LENGTH:
        headers[START_HEADER] = begins
    return RevocableStream(stream, headers=headers, media_type="text/plain; charset=utf-8")


def _starts(given: str | None) -> dict[int, int]:
    pairs = (one.split(":") for one in given.split(",")) if given else ()
    return {int(rank): int(offset) for rank, offset in pairs}


@dataclass(frozen=True)
class _State:
    """The attempt whose log is read, whether it may write more, and a note for the end of its log.

    `number` is 0 for a trial without an attempt, which is live while it may get one.
    """

    number: int
    is_live: bool
    note: str


async def _whole(log: Log, state: _State) -> AsyncIterator[str]:
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
    context: Context, trial: str, state: _State, log: Log, open_log: Callable[[int], Log], silence: _Silence
) -> AsyncIterator[str]:
    """Ends when the attempt has ended and all of its output was sent, and when the service shuts down."""
    with context.followers.one():
        if not state.number:
            while not state.number and state.is_live and not context.stopping.is_set():
                if sign := await silence.pause():
                    yield sign
                state = await run_in_threadpool(_state, context, trial, None)
            if state.number > 1:  # the first one has ended already
                state = await run_in_threadpool(_state, context, trial, 1)
            log = await run_in_threadpool(open_log, state.number)
        while not context.stopping.is_set():
            text = await run_in_threadpool(log.read, whole_lines=state.is_live)
            if text:
                yield text
            elif state.is_live:
                if sign := await silence.pause():
                    yield sign
                # Before the next read, which then gets all that was written until the attempt ended.
                state = await run_in_threadpool(_state, context, trial, state.number)
            else:
                if state.note:
                    yield state.note
                return


def _state(context: Context, trial: str, attempt: int | None) -> _State:
    """`attempt`: its number; None for the newest."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has no attempt {attempt}; attempts so far: {row.attempt_count}")
        number = attempt or row.attempt_count
        found = next((one for one in attempts_of(session, row.id) if one.number == number), None)
        has_ended = number < row.attempt_count or (found is not None and found.ended_at is not None)
        is_live = row.status in LIVE_TRIAL and not has_ended
        note = missing_end(found) if found is not None else ""
        experiment = session.get_one(ExperimentRow, row.experiment_id)
        return _State(number, is_live, removal_note(context, experiment, row.id, database_now(session)) or note)
