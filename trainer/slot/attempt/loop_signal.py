"""Lets coroutines wait for what other threads change."""

import asyncio
import contextlib
from collections.abc import Callable


class LoopSignal:
    """Belongs to one event loop, in which coroutines wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Something has changed. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine is waiting
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait_until(self, is_true: Callable[[], bool], seconds: float | None = None) -> None:
        """Return once it is true, or after so many seconds. What makes it true has to call `notify` afterwards."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()  # before the look, so that a later change is not missed
                    if is_true():
                        return
                    await self._changed.wait()
