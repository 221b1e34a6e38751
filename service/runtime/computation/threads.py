"""Threads by what they are for, so that no kind of call can take those of another."""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread

from service.store.sql.database import CONNECTIONS

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

ASSIGNING = 8
BRIEF = 4
CHECKING = 2
DOWNLOADING = 4
REPLAYING = 1
IN_BACKGROUND = 15
"""The most connections to the database that loops, group commit, proposals computed ahead, and the readers of older
events hold. The mirror and the charts hold two each: one has their lock."""

ORDINARY = CONNECTIONS - IN_BACKGROUND - ASSIGNING - BRIEF - CHECKING - REPLAYING
"""The threads of FastAPI and `run_in_threadpool`, for all other calls."""


class Threads:
    """`brief` is for heartbeats: single short transactions, which may wait for the lock of an experiment.

    `checking` is for looking up tokens, which waits for no lock.
    `reading` is for messages with many names and values, which hold the interpreter while they are read: one at a time.
    `downloading` is for reading the storage of checkpoints, which may be slow or never answer.
    `replaying` is for reading all reports of an experiment, by the call that has the `replay_turn`.
    `assigning` is for what agents and holders call else: claims, logs, ends of attempts. They may wait for a proposal.
    """

    def __init__(self) -> None:
        self._assigning = CapacityLimiter(ASSIGNING)
        self._brief = CapacityLimiter(BRIEF)
        self._checking = CapacityLimiter(CHECKING)
        self._downloading = CapacityLimiter(DOWNLOADING)
        self._reading = CapacityLimiter(1)
        self._replaying = CapacityLimiter(REPLAYING)
        self.replay_turn = asyncio.Lock()

    async def brief(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._brief)

    async def checking(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._checking)

    async def reading(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._reading)

    async def downloading(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._downloading)

    async def replaying(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._replaying)

    async def assigning(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await to_thread.run_sync(function, *arguments, limiter=self._assigning)


def limit_ordinary_threads() -> None:
    """Call this in the event loop."""
    to_thread.current_default_thread_limiter().total_tokens = ORDINARY
