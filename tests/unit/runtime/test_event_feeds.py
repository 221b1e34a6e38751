"""An event feed holds a bounded part of the event log, whatever its followers have read."""

import pytest

from service.runtime.events.event_feeds import TAIL_BYTES, TAIL_EVENTS, EventFeed, News


@pytest.mark.parametrize("size", [10, 5_000])
def test_a_feed_keeps_the_newest_events_within_its_bounds(size: int) -> None:
    feed = EventFeed()
    for start in range(0, 5_000, 100):
        feed.take(News(start, [b"x" * size] * 100, is_live=True), now=0.0)
    assert len(feed.tail) == min(TAIL_EVENTS, TAIL_BYTES // size)
    assert feed.newest == 5_000
    assert feed.holds_all_after(5_000 - len(feed.tail))
    assert not feed.holds_all_after(5_000 - len(feed.tail) - 1)
