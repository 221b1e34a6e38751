"""Jumps of the database's clock, which limits in time do not count."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from sqlalchemy.orm import Session

SecondsSince: TypeAlias = Callable[[datetime], float]
"""How long ago a time of the database is, without the jumps of its clock."""

TOLERANCE_SECONDS = 10.0
"""A smaller difference between two clocks is no jump: it takes time to read one, and clocks are adjusted gradually."""

_KEY = "clock_jumps"


class Jump(NamedTuple):
    """`seconds` is negative if the clock was set back, from `latest` or a little before."""

    before: datetime
    """What has an earlier time had begun when the clock jumped."""
    latest: datetime
    seconds: float

    def is_counted(self, since: datetime, now: datetime) -> bool:
        """Whether the time from `since` until `now` has the jump in it. What has a later time than now began before."""
        return since < self.before or now < since <= self.latest


class ClockJumps:
    """The jumps of the database's clock, compared with a clock that runs only while this machine does.

    The database's clock jumps when it is set, and when this machine was suspended. The record is in memory: a restart
    forgets it. Thread-safe, with a single caller of `compare`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._last: tuple[float, datetime] | None = None
        self._jumps: tuple[Jump, ...] = ()

    def compare(self, asked_at: float, now: datetime) -> None:
        """Note a jump since the last call. `now` is the database's time, which was read at `asked_at` or later."""
        if self.clock() - asked_at > TOLERANCE_SECONDS:
            return  # it is not known when the clock was read
        jump = self._since_last(asked_at, now)
        if jump is not None:
            self._jumps = (*self._jumps, jump)
        self._last = asked_at, now

    def elapsed_seconds(self, since: datetime, now: datetime) -> float:
        """From `since` until `now`, without the jumps in between.

        `now` is the database's present time. After the clock was set back, what has a time that comes again is taken
        for what began afterwards as soon as the clock has passed it: too little time is counted then, never too much.
        """
        unseen, jumps = self._since_last(self.clock(), now), self._jumps
        if unseen is not None and unseen.seconds > 0:
            jumps = (*jumps, unseen)
        jumped = sum(one.seconds for one in jumps if one.is_counted(since, now))
        return max(0.0, (now - since).total_seconds() - jumped)

    def until(self, now: datetime) -> SecondsSince:
        return partial(self.elapsed_seconds, now=now)

    def for_sessions(self) -> dict[Any, Any]:
        """The `info` of a session for which `clock_jumps` returns this record."""
        return {_KEY: self}

    def _since_last(self, at: float, now: datetime) -> Jump | None:
        if self._last is None:
            return None
        last_at, last_now = self._last
        passed = at - last_at
        seconds = (now - last_now).total_seconds() - passed
        if abs(seconds) <= TOLERANCE_SECONDS:
            return None
        return Jump(now - timedelta(seconds=passed), last_now + timedelta(seconds=passed), seconds)


def clock_jumps(session: Session) -> ClockJumps:
    return cast(ClockJumps, session.info[_KEY])
