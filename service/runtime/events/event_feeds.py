"""Event feeds: one reader of the event log for all followers in this process, however many there are."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from service.domain.statuses import LIVE_EXPERIMENT
from service.errors import NotFound
from service.runtime.events.notifier import Notifier, wait_for_notification
from service.store.events import events_after, heads_of
from service.store.lookup import experiment_named
from service.store.sql.database import Database
from service.store.tables import EventRow, ExperimentRow

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""The reader looks this often without a notification: another service process may have written events."""
GATHER_SECONDS = 0.02
"""The time from a notification to the read, so that the call that wrote the events is answered first."""
READER_SHARE = 0.1
"""The most of its time for which the reader reads and wakes followers."""
WOKEN_TOGETHER = 20
"""Followers that run before the event loop serves other calls again."""

KEEP_ALIVE_SECONDS = 15.0

TAIL_EVENTS = 500
TAIL_BYTES = 1_000_000
CHUNK_BYTES = 16_000
OLDER_EVENTS = 50
OLDER_READERS = 2
"""Followers that come from far behind read the database in turn, so that a thousand of them leave time for others."""

Encode = Callable[[ExperimentRow, EventRow], bytes]


@dataclass(frozen=True)
class News:
    """Events after number `start`. `is_live`: more may come. `has_lost_events`: the log is shorter than it was."""

    start: int
    events: list[bytes]
    is_live: bool
    has_lost_events: bool = False


@dataclass
class EventFeed:
    """The newest events of an experiment, in memory. Followers keep their own places in it, and nothing else."""

    first: int = 1
    """The number of the first event in `tail`."""
    tail: list[bytes] = field(default_factory=list)
    is_loaded: bool = False
    is_live: bool = True
    followers: set[asyncio.Event] = field(default_factory=set)
    woken_at: float = 0.0
    quiet_count: int = 0
    """How often the followers were woken without an event, after `KEEP_ALIVE_SECONDS` without one."""
    loss_count: int = 0
    """How often the database came back without the newest events, after a failover. Followers must resume then."""

    @property
    def newest(self) -> int:
        return self.first + len(self.tail) - 1

    def holds_all_after(self, seen: int) -> bool:
        return self.is_loaded and seen + 1 >= self.first

    def after(self, seen: int) -> tuple[bytes, int]:
        """Some of the events after number `seen`, and the number of the last of them; empty if there are none."""
        start = seen + 1 - self.first
        end = start + _count_of_chunk(self.tail, start)
        return b"".join(self.tail[start:end]), seen + max(0, end - start)

    def take(self, news: News, now: float) -> bool:
        """Add what is new; return whether to wake the followers: also after a quiet time."""
        if news.has_lost_events:
            self.is_loaded, self.tail = False, []
            self.loss_count += 1
        if not self.is_loaded:
            self.first = news.start + 1
        is_change = bool(news.events) or news.is_live != self.is_live or not self.is_loaded
        is_quiet = not is_change and now - self.woken_at >= KEEP_ALIVE_SECONDS
        self.is_loaded, self.is_live = True, news.is_live
        self._add(news.events)
        if is_quiet:
            self.quiet_count += 1
        if is_change or is_quiet:
            self.woken_at = now
        return is_change or is_quiet

    def _add(self, events: Sequence[bytes]) -> None:
        self.tail += events
        size, keep = sum(map(len, self.tail)), 0
        while size > TAIL_BYTES or len(self.tail) - keep > TAIL_EVENTS:
            size -= len(self.tail[keep])
            keep += 1
        del self.tail[:keep]
        self.first += keep


def _count_of_chunk(events: Sequence[bytes], start: int) -> int:
    """How many of the events from `start` on make a chunk: one at least, if there is one."""
    size = 0
    for count, index in enumerate(range(start, len(events)), 1):
        size += len(events[index])
        if size >= CHUNK_BYTES:
            return count
    return max(0, len(events) - start)


class EventFeeds:
    """The feeds of the experiments that have followers. Used in one event loop."""

    def __init__(self, database: Database, new_events: Notifier, stopping: threading.Event, encode: Encode) -> None:
        """`new_events` is also notified when `stopping` is set."""
        self._database = database
        self._stopping = stopping
        self._new_events = new_events
        self._encode = encode
        self._feeds: dict[str, EventFeed] = {}
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._older_readers = CapacityLimiter(OLDER_READERS)

    @contextlib.contextmanager
    def follow(self, experiment_id: str) -> Iterator[tuple[EventFeed, asyncio.Event]]:
        """Yield the experiment's feed, and an event that is set when the feed has changed."""
        feed, woken = self._feeds.setdefault(experiment_id, EventFeed()), asyncio.Event()
        feed.followers.add(woken)
        self._changed.set()
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_while_followed(), context=Context())  # of no request
        try:
            yield feed, woken
        finally:
            feed.followers.discard(woken)
            if not feed.followers:
                del self._feeds[experiment_id]

    async def older(self, experiment_id: str, seen: int) -> tuple[bytes, int]:
        """Some of the events after number `seen`, which the feed may not hold, and the number of the last of them."""
        return await to_thread.run_sync(self._older, experiment_id, seen, limiter=self._older_readers)

    def _older(self, experiment_id: str, seen: int) -> tuple[bytes, int]:
        with self._database.read() as session:
            try:
                events = self._encoded(session, experiment_id, seen, OLDER_EVENTS)
            except NotFound:  # deleted since
                events = []
        return b"".join(events), seen + len(events)

    async def _read_while_followed(self) -> None:
        clock = asyncio.get_running_loop().time
        with self._new_events.subscribe() as self._changed:
            while self._feeds and not self._stopping.is_set():
                self._changed.clear()
                began = clock()
                await self._try_to_read()
                pause = (clock() - began) * (1 / READER_SHARE - 1)
                await asyncio.sleep(min(pause, POLL_SECONDS))
                if await wait_for_notification(self._changed, POLL_SECONDS):
                    await asyncio.sleep(GATHER_SECONDS)
        self._reader = None
        for feed in list(self._feeds.values()):
            await _wake(feed)  # so that they see that the service stops

    async def _try_to_read(self) -> None:
        try:
            await self._read_all()
        except SQLAlchemyError as error:
            logger.warning("event streams wait for the database: %s", error)
        except Exception:
            logger.exception("the events for the streams could not be read")

    async def _read_all(self) -> None:
        known = {id_: feed.newest if feed.is_loaded else None for id_, feed in self._feeds.items()}
        for experiment_id, news in (await run_in_threadpool(self._news, known)).items():
            feed = self._feeds.get(experiment_id)
            if feed is not None and feed.take(news, asyncio.get_running_loop().time()):
                await _wake(feed)

    def _news(self, known: Mapping[str, int | None]) -> dict[str, News]:
        with self._database.read() as session:
            found = {id_: News(newest or 0, [], is_live=False) for id_, newest in known.items()}  # if it was deleted
            for id_, head in heads_of(session, list(known)).items():
                newest = known[id_]
                has_lost_events = newest is not None and head.event_count < newest
                tail = max(0, head.event_count - TAIL_EVENTS)
                start = tail if newest is None or has_lost_events else newest
                events = self._encoded(session, id_, start, TAIL_EVENTS) if head.event_count > start else []
                is_live = head.status in LIVE_EXPERIMENT or head.event_count > start + len(events)
                found[id_] = News(start, events, is_live, has_lost_events)
        return found

    def _encoded(self, session: Session, experiment_id: str, after: int, most: int) -> list[bytes]:
        experiment = experiment_named(session, experiment_id)
        return [self._encode(experiment, row) for row in events_after(session, experiment_id, after, most)]


async def _wake(feed: EventFeed) -> None:
    """In groups, so that a thousand followers do not keep other calls waiting."""
    for count, woken in enumerate(list(feed.followers), 1):
        woken.set()
        if count % WOKEN_TOGETHER == 0:
            await asyncio.sleep(0)
