"""Wakes those who wait in this process for a change. A hint only: they look into the database, and poll besides."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator


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


class Bells:
    """A bell for each of those that somebody listens for."""

    def __init__(self) -> None:
        self._bells: defaultdict[str, Bell] = defaultdict(Bell)
        self._listeners: defaultdict[str, int] = defaultdict(int)
        self._guard = threading.Lock()

    def ring(self, names: Collection[str] | None = None) -> None:
        """All of them when it is not said for whom."""
        with self._guard:
            wanted = self._bells.keys() if names is None else self._bells.keys() & set(names)
            bells = [self._bells[name] for name in wanted]
        for bell in bells:
            bell.ring()

    def listened_for(self) -> set[str]:
        with self._guard:
            return set(self._bells)

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """As `Bell.listening`."""
        with self._guard:
            self._listeners[name] += 1
            bell = self._bells[name]
        try:
            with bell.listening() as event:
                yield event
        finally:
            with self._guard:
                self._listeners[name] -= 1
                if not self._listeners[name]:
                    del self._listeners[name], self._bells[name]


async def rung(event: asyncio.Event, seconds: float) -> bool:
    """Whether the bell rang within the time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
