"""Limits of connections, so that clients that send nothing, or read nothing, cannot hold them all."""

import asyncio
import resource
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

CHECK_SECONDS = 0.5
SPARE_FILES = 200
"""File descriptors that are not for connections: the database, packages, logs, worker processes."""


@dataclass(frozen=True)
class ConnectionLimits:
    """`request_seconds` is the time for a request's header, and again for its body.

    The body gets a second more for each `min_rate` bytes that have arrived, up to `most_more_seconds`. `stall_seconds`
    is how long a client may read nothing of an answer.
    """

    most: int = 4000
    request_seconds: float = 20.0
    stall_seconds: float = 30.0
    min_rate: int = 1000
    most_more_seconds: float = 900.0
    header_bytes: int = 64_000


class Connection(Protocol):
    waiting_since: float | None
    """Since when it waits for the header of a request; None while it is in a request."""

    def check(self, now: float) -> None:
        """End the connection if it has exceeded a limit."""

    def abort(self) -> None: ...


class ConnectionWatch:
    """The connections of one service process, which are checked together: a timer for each request would cost more."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for it. A connection between two requests makes room: the one that waits longest."""
        if len(self._connections) >= self.limits.most:
            waiting = [(one.waiting_since, one) for one in self._connections if one.waiting_since is not None]
            if not waiting:
                return False
            _, longest = min(waiting, key=itemgetter(0))
            longest.abort()
        self._connections.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)
        return True

    def discard(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            connection.check(loop.time())
        self._timer = loop.call_later(CHECK_SECONDS, self._check) if self._connections else None


def raise_file_limit() -> int:
    """Let this process open as many files as it may; return how many connections that allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max(1, most - SPARE_FILES)
