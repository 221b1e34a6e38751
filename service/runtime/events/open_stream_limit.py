"""Counts the long answers that this process is sending: those of followers of events and logs, and downloads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import Busy


class OpenStreams:
    """Used in one event loop. `too_many` gives the error for one more than `most`, which is its argument."""

    def __init__(self, most: int, too_many: Callable[[int], Busy]) -> None:
        self._most = most
        self._too_many = too_many
        self.count = 0

    def check(self) -> None:
        """Raises Busy if no further stream may begin."""
        if self.count >= self._most:
            raise self._too_many(self._most)

    @contextmanager
    def one(self) -> Iterator[None]:
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


def follower_streams(most: int = 2000) -> OpenStreams:
    return OpenStreams(most, _too_many_followers)


def download_streams(most: int = 32) -> OpenStreams:
    """The limit on simultaneous checkpoint downloads (a few MB of memory each)."""
    return OpenStreams(most, _too_many_downloads)


def _too_many_followers(most: int) -> Busy:
    return Busy(
        f"{most} streams of events and logs are open already, the most that this service process takes "
        f"(its setting PACELINE_MAX_FOLLOWERS); read pages (follow=false), or repeat the call later",
        max_followers=most,
    )


def _too_many_downloads(most: int) -> Busy:
    return Busy(
        f"{most} checkpoints are being downloaded already, the maximum number of simultaneous downloads; repeat the "
        "call later"
    )
