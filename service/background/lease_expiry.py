"""The loop that ends silent attempts, and trials and experiments that exceed their time limits."""

import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from service.background.loop import PartlyFailed
from service.operations.attempts.lease_expiry import (
    expire_agent_names,
    expire_leases,
    extend_all_leases,
    extend_leases_after_absence,
    shorten_all_leases,
)
from service.operations.attempts.reachability import Reachability, announce_service
from service.operations.attempts.time_limits import enforce_time_limits
from service.runtime.collected_errors import sum_of_all
from service.runtime.context import Context
from service.store.sql.database import database_now, is_away


def boot_seconds() -> float:
    """A clock that also counts while the machine sleeps, which `time.monotonic` does not on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SomeFailed(ExceptionGroup[Exception], PartlyFailed):
    """Some attempts, experiments or agents failed. The loop keeps its pace: a longer pause would extend all leases."""


class LeaseExpiry:
    """Ends an attempt for its silence only if its holder could have reached the service.

    Holders may not have been able to: when the service starts, or after it was suspended or its database did not
    answer. Then every holder first gets a whole lease, unless it could reach another service; also when the database's
    clock was set forward, since leases end by it. When that was set back, leases end no later than usual. `clock`
    returns seconds.
    """

    name = "lease expiry"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context, clock: Callable[[], float] = boot_seconds) -> None:
        self._context = context
        self._clock = clock
        self._last_pass_at: float | None = None
        self._last_times: tuple[float, datetime] | None = None
        self._reachable_since: datetime | None = None
        self._is_set_forward = self._is_set_back = False

    def run_once(self) -> int:
        began = self._clock()
        step = self._step_of_database_clock(began)
        self._is_set_forward |= step > self._tolerance
        self._is_set_back |= step < -self._tolerance
        if self._is_set_back:
            self._shorten_leases()
        was_away = self._last_pass_at is None or self._may_have_missed_heartbeats(self._last_pass_at)
        if self._is_set_forward or was_away:
            self._last_pass_at = None  # until it has succeeded
            self._reachable_since = self._extend_leases()
            self._is_set_forward = False
        reachability = Reachability(self._reachable_since, still=lambda: not self._may_have_missed_heartbeats(began))
        steps = (expire_leases, expire_agent_names, enforce_time_limits)
        work = [partial(step, self._context, reachability) for step in steps]
        try:
            return sum_of_all([*work, partial(self._announce, began)])
        except ExceptionGroup as errors:
            if errors.subgroup(is_away):  # the database may not have answered the holders either
                began = -math.inf
                raise
            raise SomeFailed(errors.message, errors.exceptions) from None
        finally:
            self._last_pass_at = began

    def _extend_leases(self) -> datetime:
        if self._is_set_forward:
            return extend_all_leases(self._context)
        return extend_leases_after_absence(self._context, timedelta(seconds=self._tolerance))

    def _shorten_leases(self) -> None:
        now = shorten_all_leases(self._context)
        if self._reachable_since is not None:
            self._reachable_since = min(self._reachable_since, now)
        self._is_set_back = False

    def _announce(self, began: float) -> int:
        """Others may end the leases of a service that is there, so all leases have been extended before."""
        if not self._context.database.is_sqlite and not self._may_have_missed_heartbeats(began):
            announce_service(self._context, self._reachable_since)
        return 0

    def _step_of_database_clock(self, began: float) -> float:
        """Seconds that it has gained since the last pass, by comparison with this machine's. Notes its jumps."""
        jumps = self._context.database.clock_jumps
        asked_at = jumps.clock()
        with self._context.database.read() as session:
            now = database_now(session)
        jumps.compare(asked_at, now)
        last, self._last_times = self._last_times, (began, now)
        if last is None:
            return 0.0
        passed, passed_there = began - last[0], (now - last[1]).total_seconds()
        return passed_there - passed

    def _may_have_missed_heartbeats(self, since: float) -> bool:
        return self._clock() - since > self._tolerance

    @property
    def _tolerance(self) -> float:
        """Holders send three heartbeats per lease, so a pass or two may be late without a missed heartbeat."""
        return max(self._context.settings.lease_seconds / 3, 3 * self.every)
