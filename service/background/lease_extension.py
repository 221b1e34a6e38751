"""The loop that watches whether holders can reach the service, and extends their leases when they could not."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from service.operations.attempts.lease_expiry import (
    extend_all_leases,
    extend_leases_after_absence,
    shorten_all_leases,
)
from service.operations.attempts.reachability import Reachability, announce_service, call_as_a_holder
from service.runtime.context import Context
from service.store.sql.database import database_now


def boot_seconds() -> float:
    """A clock that also counts while the machine sleeps, which `time.monotonic` does not on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class _Pass(NamedTuple):
    """A pass that succeeded: when it began, by this machine's clock, and what the database's showed."""

    began: float
    now: datetime
    reachable_since: datetime


class LeaseExtension:
    """Gives every holder a whole lease after a time in which it may not have been able to reach the service.

    That is when the service starts, and after it was suspended or its database did not answer, unless the holder could
    reach another service. Leases are also extended when the database's clock was set forward, since they end by it.
    When that was set back, they end no later than usual. `clock` returns seconds.

    An absence is measured between two passes. So a pass does no more than a holder's call: work that takes long for
    its own reasons belongs in another loop, and is no absence.
    """

    name = "lease extension"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context, clock: Callable[[], float] = boot_seconds) -> None:
        self._context = context
        self._clock = clock
        self._last: _Pass | None = None
        self._last_times: tuple[float, datetime] | None = None
        self._is_set_forward = self._is_set_back = False
        self._is_in_doubt = threading.Event()

    def run_once(self) -> None:
        began = self._clock()
        now = self._compare_clocks()
        if self._is_set_back:
            self._shorten_leases()
        if self._is_in_doubt.is_set():
            self._is_in_doubt.clear()
            self._last = None
        last = self._last
        if last is None or self._is_set_forward or self._may_have_missed_heartbeats(last.began):
            self._last = None  # until the leases are extended
            since = self._extend_leases()
        else:
            since = last.reachable_since
        self._last = _Pass(began, now, since)
        self._announce(began, since)

    def reachability(self) -> Reachability:
        """Whether holders can reach the service, for work that begins now."""
        last = self._last
        return Reachability(last and last.reachable_since, still=partial(self._is_reachable_since, last))

    def doubt(self) -> None:
        """Take the present for an absence, because of an error that a pass does not meet. From any thread."""
        self._is_in_doubt.set()

    def _is_reachable_since(self, earlier: _Pass | None, now: datetime) -> bool:
        """Whether there was no absence since. The database's clock counts, too: it may just have been set forward."""
        last = self._last
        if (
            self._is_in_doubt.is_set()
            or last is None
            or earlier is None
            or last.reachable_since != earlier.reachable_since
        ):
            return False
        silent = max(self._clock() - last.began, (now - last.now).total_seconds())
        return silent <= self._tolerance

    def _extend_leases(self) -> datetime:
        if not self._is_set_forward:
            return extend_leases_after_absence(self._context, timedelta(seconds=self._tolerance))
        since = extend_all_leases(self._context)
        self._is_set_forward = False
        return since

    def _shorten_leases(self) -> None:
        now, last = shorten_all_leases(self._context), self._last
        if last is not None:
            self._last = last._replace(reachable_since=min(last.reachable_since, now))
        self._is_set_back = False

    def _announce(self, began: float, since: datetime) -> None:
        """Others may end the leases of a service that is there, so all leases have been extended before."""
        if not self._context.database.is_sqlite and not self._may_have_missed_heartbeats(began):
            announce_service(self._context, since)

    def _compare_clocks(self) -> datetime:
        """Return the database's time. Notes its jumps since the last pass, by comparison with this machine's clocks."""
        jumps = self._context.database.clock_jumps
        with self._context.database.write() as session:
            call_as_a_holder(session)
            asked_at, at = jumps.clock(), self._clock()
            now = database_now(session)
        jumps.compare(asked_at, now)
        last, self._last_times = self._last_times, (at, now)
        step = 0.0 if last is None else (now - last[1]).total_seconds() - (at - last[0])
        self._is_set_forward |= step > self._tolerance
        self._is_set_back |= step < -self._tolerance
        return now

    def _may_have_missed_heartbeats(self, since: float) -> bool:
        return self._clock() - since > self._tolerance

    @property
    def _tolerance(self) -> float:
        """Holders send three heartbeats per lease, so a pass or two may be late without a missed heartbeat."""
        return max(self._context.settings.lease_seconds / 3, 3 * self.every)
