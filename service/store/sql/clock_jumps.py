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

MAX_JUMPS = 1000

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

    def until_set_back(self, later: "Jump") -> "Jump":
        """Return the jump as it counts after a later one, back: times come again, for what begins after both."""
        return self._replace(before=min(self.before, max(self.latest, later.before)))


class _Record(NamedTuple):
    """What two clocks showed last, and the jumps until then: read and replaced together."""

    last: tuple[float, datetime] | None = None
    jumps: tuple[Jump, ...] = ()

    def jump_at(self, at: float, now: datetime) -> Jump | None:
        """The jump since the last time, if there is one."""
        if self.last is None:
            return None
        last_at, last_now = self.last
        passed = at - last_at
        seconds = (now - last_now).total_seconds() - passed
        if abs(seconds) <= TOLERANCE_SECONDS:
            return None
        return Jump(now - timedelta(seconds=passed), last_now + timedelta(seconds=passed), seconds)

    def with_jump(self, jump: Jump) -> tuple[Jump, ...]:
        known = [one.until_set_back(jump) for one in self.jumps] if jump.seconds < 0 else self.jumps
        return (*known, jump)[-MAX_JUMPS:]


class ClockJumps:
    """The jumps of the database's clock, compared with a clock that runs only while this machine does.

    The database's clock jumps when it is set, and when this machine was suspended. The record is in memory: a restart
    forgets it. Thread-safe, with a single caller of `compare`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._record = _Record()

    def compare(self, asked_at: float, now: datetime) -> None:
        """Note a jump since the last call. `now` is the database's time, which was read at `asked_at` or later."""
        if self.clock() - asked_at > TOLERANCE_SECONDS:
            return  # it is not known when the clock was read
        record = self._record
        jump = record.jump_at(asked_at, now)
        self._record = _Record((asked_at, now), record.jumps if jump is None else record.with_jump(jump))

    def elapsed_seconds(self, since: datetime, now: datetime) -> float:
        """From `since` until `now`, without the jumps in between.

        `now` is the database's present time. After the clock was set back, what has a time that comes again is taken
        for what began afterwards as soon as the clock has passed it: too little time is counted then, never too much.
        """
        record = self._record
        unseen, jumps = record.jump_at(self.clock(), now), record.jumps
        if unseen is not None and unseen.seconds > 0:
            jumps = (*jumps, unseen)
        jumped = sum(one.seconds for one in jumps if one.is_counted(since, now))
        return max(0.0, (now - since).total_seconds() - jumped)

    def until(self, now: datetime) -> SecondsSince:
        return partial(self.elapsed_seconds, now=now)

    def for_sessions(self) -> dict[Any, Any]:
        """The `info` of a session for which `clock_jumps` returns this record."""
        return {_KEY: self}


def clock_jumps(session: Session) -> ClockJumps:
    return cast(ClockJumps, session.info[_KEY])
