"""In-process notifications of changes. They are hints only: subscribers read the database, and also poll it."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator


class Notifier:
    """`notify` may be called from any thread; subscribers wait in event loops."""

    def __init__(self) -> None:
        self._subscribers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    def notify(self) -> None:
        with self._lock:
            subscribers = list(self._subscribers)
        for loop, event in subscribers:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no subscriber is waiting
                loop.call_soon_threadsafe(event.set)

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """Yield an event that each later `notify` sets. Clear it before reading the database, not after."""
        subscriber = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._subscribers.add(subscriber)
        try:
            yield subscriber[1]
        finally:
            with self._lock:
                self._subscribers.discard(subscriber)


class KeyedNotifier:
    """A `Notifier` for each key that has subscribers."""

    def __init__(self) -> None:
        self._notifiers: defaultdict[str, Notifier] = defaultdict(Notifier)
        self._subscriber_counts: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def notify(self, keys: Collection[str] | None = None) -> None:
        """Without `keys`, notify all subscribers."""
        with self._lock:
            wanted = self._notifiers.keys() if keys is None else self._notifiers.keys() & set(keys)
            notifiers = [self._notifiers[key] for key in wanted]
        for notifier in notifiers:
            notifier.notify()

    def subscribed_keys(self) -> set[str]:
        with self._lock:
            return set(self._notifiers)

    @contextlib.contextmanager
    def subscribe(self, key: str) -> Iterator[asyncio.Event]:
        """As `Notifier.subscribe`, for one key."""
        with self._lock:
            self._subscriber_counts[key] += 1
            notifier = self._notifiers[key]
        try:
            with notifier.subscribe() as event:
                yield event
        finally:
            with self._lock:
                self._subscriber_counts[key] -= 1
                if not self._subscriber_counts[key]:
                    del self._subscriber_counts[key], self._notifiers[key]


async def wait_for_notification(event: asyncio.Event, seconds: float) -> bool:
    """Return False when the time is over first."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
