"""Counts the open streams of this process: followers of events and of logs."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import Busy


class Followers:
    """Used in one event loop."""

    def __init__(self, most: int = 2000) -> None:
        self._most = most
        self.count = 0

    def check(self) -> None:
        """Raises Busy if no further follower may come."""
        if self.count >= self._most:
            raise Busy(
                f"{self.count} streams of events and logs are open already, the most that this service process takes "
                f"(its setting PACELINE_MAX_FOLLOWERS); read pages (follow=false), or repeat the call later",
                max_followers=self._most,
            )

    @contextmanager
    def one(self) -> Iterator[None]:
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
