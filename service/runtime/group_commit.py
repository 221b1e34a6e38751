"""Group commit: concurrent calls are stored in one transaction, so that they share one fsync."""

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")

MAX_BATCH = 200
"""The most requests that one batch holds."""

GATHER_SECONDS = 0.02
"""The shortest time from the start of a batch with several requests to the start of the next batch."""


@dataclass
class _Call(Generic[Request, Result]):
    request: Request
    result: asyncio.Future[Result]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)


class GroupCommit(Generic[Request, Result]):
    """One thread that passes all pending requests to `commit` in one call.

    `commit` returns a result for each request, in their order; an exception as a result is raised in the caller of that
    request. If `commit` itself raises, all callers of the batch get the exception.

    A lone caller is answered immediately. Under load, requests are gathered for `GATHER_SECONDS`: a transaction costs
    about the same for ten requests as for one.
    """

    def __init__(self, name: str, commit: Callable[[Sequence[Request]], Sequence[Result | Exception]]) -> None:
        self._commit = commit
        self._calls: queue.SimpleQueue[_Call[Request, Result] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5) -> None:
        """Commit what is pending, then end the thread. Return after `timeout` seconds at the latest."""
        self._calls.put(None)
        self._thread.join(timeout)

    async def submit(self, request: Request) -> Result:
        """Return the request's result once its batch is committed."""
        call: _Call[Request, Result] = _Call(request, asyncio.get_running_loop().create_future())
        self._calls.put(call)
        return await call.result

    def _run(self) -> None:
        while (calls := self._next_batch()) is not None:
            earliest_next = time.monotonic() + GATHER_SECONDS
            results = self._results(calls)
            by_loop = defaultdict(list)
            for call, result in zip(calls, results, strict=True):
                by_loop[call.loop].append((call, result))
            for loop, resolved in by_loop.items():
                with suppress(RuntimeError):  # the loop is closed, so no caller is waiting
                    loop.call_soon_threadsafe(_resolve, resolved)
            if len(calls) > 1:
                time.sleep(max(0.0, earliest_next - time.monotonic()))

    def _next_batch(self) -> list[_Call[Request, Result]] | None:
        """Wait for a call and return it with all others that are pending; None after `stop`."""
        call = self._calls.get()
        calls = []
        while call is not None:
            calls.append(call)
            if len(calls) == MAX_BATCH or self._calls.empty():
                return calls
            call = self._calls.get()
        self._calls.put(None)  # so that the call after this batch sees the end, too
        return calls or None

    def _results(self, calls: Sequence[_Call[Request, Result]]) -> Sequence[Result | Exception]:
        try:
            return self._commit([call.request for call in calls])
        except Exception as error:  # noqa: BLE001 - it is raised in each caller
            return [error] * len(calls)


def _resolve(resolved: list[tuple[_Call[Request, Result], Result | Exception]]) -> None:
    """Answer the callers; called in their event loop."""
    for call, result in resolved:
        if call.result.done():
            continue  # the caller has disconnected
        if isinstance(result, Exception):
            call.result.set_exception(result)
        else:
            call.result.set_result(result)
