"""Group commit: concurrent calls are stored in one transaction, so that they share one fsync."""

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

MAX_BATCH = 200
"""The most requests that one batch holds."""

GATHER_SECONDS = 0.02
"""The longest time from the start of a batch with several requests to the start of the next batch."""

RETURN_SECONDS = 0.012
"""The longest time from the answers of such a batch to the next one, if it is later.

Callers that answer with their next request come back within it. Without it, the first of them would have a transaction
of its own, for which all others wait.
"""


class CommitFailed(Exception):
    """The commit ended with what no caller may get: a `SystemExit` would end the event loop."""


@dataclass
class _Call(Generic[Request, Result]):
    request: Request
    result: asyncio.Future[Result]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)


class GroupCommit(Generic[Request, Result]):
    """One thread that passes all pending requests to `commit` in one call.

    `commit` returns a result for each request, in their order; an exception as a result is raised in the caller of that
    request. If `commit` itself raises, all callers of the batch get the exception, and the thread goes on. So `commit`
    repeats a failed batch piece by piece itself: see `ingest_reports` in service/operations/reports/ingest.py.

    A lone caller is answered immediately. Under load, a batch waits shortly for as many requests as the one before had:
    a transaction costs about the same for ten requests as for one.
    """

    def __init__(self, name: str, commit: Callable[[Sequence[Request]], Sequence[Result | Exception]]) -> None:
        self._commit = commit
        self._calls: deque[_Call[Request, Result]] = deque()
        self._changed = threading.Condition()
        self._wanted = 1
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def pending_count(self) -> int:
        """How many requests wait for the next batch."""
        return len(self._calls)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5) -> None:
        """Commit what is pending, then end the thread. Return after `timeout` seconds at the latest."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout)

    async def submit(self, request: Request) -> Result:
        """Return the request's result once its batch is committed."""
        call: _Call[Request, Result] = _Call(request, asyncio.get_running_loop().create_future())
        with self._changed:
            self._calls.append(call)
            if len(self._calls) >= self._wanted:  # to wake the thread for each would cost more than the rest
                self._changed.notify()
        return await call.result

    def _run(self) -> None:
        answered = 0
        latest = time.monotonic()
        while calls := self._next_batch(answered, latest):
            began = time.monotonic()
            self._answer(calls)
            answered = len(calls) if len(calls) > 1 else 0
            latest = max(began + GATHER_SECONDS, time.monotonic() + RETURN_SECONDS)

    def _next_batch(self, answered: int, latest: float) -> list[_Call[Request, Result]]:
        """Wait until `latest` for as many calls as were just answered, then for one; empty after `stop`."""
        with self._changed:
            self._wait_for(answered, latest - time.monotonic())
            self._wait_for(1)
            return [self._calls.popleft() for _ in range(min(len(self._calls), MAX_BATCH))]

    def _wait_for(self, count: int, timeout: float | None = None) -> None:
        self._wanted = count
        self._changed.wait_for(lambda: self._stopped or len(self._calls) >= count, timeout)

    def _answer(self, calls: Sequence[_Call[Request, Result]]) -> None:
        """Commit the calls' requests together, and hand each call its result in its event loop.

        Whatever `commit` raises: without this thread, every caller would wait forever.
        """
        results: Sequence[Result | Exception]
        try:
            results = self._commit([call.request for call in calls])
        except Exception as error:  # noqa: BLE001 - it is raised in each caller
            results = [error] * len(calls)
        except BaseException as error:
            log.exception("the commit of %d requests failed", len(calls))
            results = [CommitFailed(f"{type(error).__name__}: {error}")] * len(calls)
        by_loop = defaultdict(list)
        for call, result in zip(calls, results, strict=True):
            by_loop[call.loop].append((call, result))
        for loop, resolved in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed, so no caller is waiting
                loop.call_soon_threadsafe(_resolve, resolved)


def _resolve(resolved: list[tuple[_Call[Request, Result], Result | Exception]]) -> None:
    """Answer the callers; called in their event loop."""
    for call, result in resolved:
        if call.result.done():
            continue  # the caller has disconnected
        if isinstance(result, Exception):
            call.result.set_exception(result)
        else:
            call.result.set_result(result)
