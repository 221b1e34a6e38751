"""`/v1/trials/{t}/logs`: the output of a trial's ranks, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from search.mistakes import Mistake
from service.api.http.dependencies import Ctx, TrialId
from service.api.http.openapi_errors import problems
from service.api.http.queries import Whole
from service.api.http.routes import Route
from service.api.http.security.revocation import RevocableStream
from service.api.http.unbuffered import UNBUFFERED
from service.domain.statuses import LIVE_TRIAL
from service.errors import Invalid, NotFound
from service.operations.age_retention import removal_note
from service.operations.attempts.rank_logs import NO_STARTS, Log, missing_end
from service.runtime.context import Context
from service.store.attempts import attempts_of
from service.store.lookup import trial_named
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow

router = APIRouter(prefix="/v1/trials", tags=["trials"], route_class=Route)

NO_ATTEMPT = 0
"""In place of the number of the newest attempt."""

POLL_SECONDS = 0.5
KEEP_ALIVE_HEADER = "Paceline-Keep-Alive"
KEEP_ALIVE = "\0"
KEEP_ALIVE_PAUSES = 30
"""After so many of them something is sent to a caller that wants to be kept alive."""

START_HEADER = "Paceline-Log-Start"
MAX_START_LENGTH = 4000
"""Of the header, which is left out where it would be longer: proxies limit headers and URLs to 8 kB or more."""
START_PATTERN = r"^[0-9]{1,6}/([0-9]{1,6}:[0-9]{1,15}(,[0-9]{1,6}:[0-9]{1,15})*)?$"


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
            pattern=START_PATTERN,
            max_length=MAX_START_LENGTH,
            description=f"instead of `tail`: where an earlier answer with `tail` began, as its header `{START_HEADER}` "
            "said, so that the same lines of the same attempt come again, and what was written since",
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
    begin = None if start is None else _Start.parsed(start)
    state = await run_in_threadpool(_state, context, trial, _attempt_of(begin, attempt))

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
    begun = str(_Start(state.number, log.starts))
    if tail is not None and len(begun) <= MAX_START_LENGTH:
        headers[START_HEADER] = begun
    return RevocableStream(stream, headers=headers, media_type="text/plain; charset=utf-8")


class _Start(NamedTuple):
    """Where a tail begins: `2/0:4,1:0` in the log of attempt 2, after 4 bytes of rank 0 and none of rank 1.

    The attempt is `NO_ATTEMPT` where the trial had none.
    """

    attempt: int
    offsets: Mapping[int, int]

    @classmethod
    def parsed(cls, given: str) -> Self:
        attempt, _, places = given.partition("/")
        pairs = (one.split(":") for one in places.split(",") if one)
        return cls(int(attempt), {int(rank): int(offset) for rank, offset in pairs})

    def __str__(self) -> str:
        return f"{self.attempt}/{','.join(f'{rank}:{offset}' for rank, offset in self.offsets.items())}"


def _attempt_of(start: _Start | None, attempt: int | None) -> int | None:
    """Raises Invalid where the call names two attempts."""
    named = start.attempt if start is not None else None
    if attempt and named and attempt != named:
        why = f"is {attempt}, but start is of attempt {named}; leave out one of the two"
        raise Invalid([Mistake(("attempt",), why)])
    return attempt or named


@dataclass(frozen=True)
class _State:
    """The attempt whose log is read, whether it may write more, and a note for the end of its log.

    `number` is `NO_ATTEMPT` for a trial without an attempt, which is live while it may get one.
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
                state = await run_in_threadpool(_state, context, trial, NO_ATTEMPT)
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
    """`attempt`: its number; None for the newest, and `NO_ATTEMPT` for the first if there is one by now."""
    with context.database.read() as session:
        row = trial_named(session, trial)
        if attempt is not None and attempt > row.attempt_count:
            raise NotFound(f"trial {trial} has no attempt {attempt}; attempts so far: {row.attempt_count}")
        number = row.attempt_count if attempt is None else attempt or min(1, row.attempt_count)
        found = next((one for one in attempts_of(session, row.id) if one.number == number), None)
        has_ended = number < row.attempt_count or (found is not None and found.ended_at is not None)
        is_live = row.status in LIVE_TRIAL and not has_ended
        note = missing_end(found) if found is not None else ""
        experiment = session.get_one(ExperimentRow, row.experiment_id)
        return _State(number, is_live, removal_note(context, experiment, row.id, database_now(session)) or note)
