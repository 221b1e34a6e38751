"""Does in one go what many ask for at the same time."""

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

MOST_AT_ONCE = 200
GATHER_SECONDS = 0.02
"""From one time that several are answered to the next."""


@dataclass
class _Call(Generic[Asked, Answered]):
    asked: Asked
    answer: asyncio.Future[Answered]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def settle(self, answer: Answered | Exception) -> None:
        if self.answer.done():
            return  # whoever asked has gone away
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Together(Generic[Asked, Answered]):
    """A thread that calls `act` with all that has been asked while it was busy: a group commit, when `act` commits.

    `act` answers each in its place, with an exception for those that it refuses. It may itself raise for all of them.

    Who asks alone is answered at once. When several do, the next ones are gathered for a moment: to act costs about the
    same for ten as for one, and time spent on one could not be spent on the others.
    """

    def __init__(self, name: str, act: Callable[[Sequence[Asked]], Sequence[Answered | Exception]]) -> None:
        self._act = act
        self._calls: queue.SimpleQueue[_Call[Asked, Answered] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5) -> None:
        """What has been asked before is still answered, unless that takes longer than `timeout` seconds."""
        self._calls.put(None)
        self._thread.join(timeout)

    async def ask(self, asked: Asked) -> Answered:
        call: _Call[Asked, Answered] = _Call(asked, asyncio.get_running_loop().create_future())
        self._calls.put(call)
        return await call.answer

    def _run(self) -> None:
        while (calls := self._next()) is not None:
            earliest = time.monotonic() + GATHER_SECONDS
            answers = self._answers(calls)
            by_loop = defaultdict(list)
            for call, answer in zip(calls, answers, strict=True):
                by_loop[call.loop].append((call, answer))
            for loop, settled in by_loop.items():
                with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                    loop.call_soon_threadsafe(_settle, settled)
            if len(calls) > 1:
                time.sleep(max(0.0, earliest - time.monotonic()))

    def _next(self) -> list[_Call[Asked, Answered]] | None:
        """Everybody who waits, or None at the end."""
        call = self._calls.get()
        calls = []
        while call is not None:
            calls.append(call)
            if len(calls) == MOST_AT_ONCE or self._calls.empty():
                return calls
            call = self._calls.get()
        self._calls.put(None)  # for the next look
        return calls or None

    def _answers(self, calls: Sequence[_Call[Asked, Answered]]) -> Sequence[Answered | Exception]:
        try:
            return self._act([call.asked for call in calls])
        except Exception as error:  # noqa: BLE001 - it is raised in each who asked
            return [error] * len(calls)


def _settle(settled: list[tuple[_Call[Asked, Answered], Answered | Exception]]) -> None:
    for call, answer in settled:
        call.settle(answer)
