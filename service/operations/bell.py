"""Wakes those who wait in this process for a change. A hint only: they look into the database, and poll besides."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Bell:
    """Rung from any thread, waited for in event loops."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._guard = threading.Lock()

    def ring(self) -> None:
        with self._guard:
            waiting = list(self._waiting)
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # its loop has closed: nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set by each ring from now on; the listener clears it before it looks."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._guard:
            self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            with self._guard:
                self._waiting.discard(entry)


async def rung(event: asyncio.Event, seconds: float) -> bool:
    """Whether the bell rang within the time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
