"""The loops of a service that act on leases and on limits in time, without their threads."""

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.background.lease_expiry import LeaseExpiry
from service.background.lease_extension import LeaseExtension, boot_seconds
from service.background.time_limits import TimeLimits
from service.runtime.context import Context
from service.store.sql.database import database_now


class LeaseLoops:
    def __init__(self, context: Context, clock: Callable[[], float] = boot_seconds) -> None:
        self.extension = LeaseExtension(context, clock)
        self.expiry = LeaseExpiry(context, self.extension)
        self.limits = TimeLimits(context, self.extension)

    def run_once(self) -> int:
        """Let each make a pass."""
        self.extension.run_once()
        return self.expiry.run_once() + self.limits.run_once()


def clock_ahead(by: timedelta) -> Callable[[Session], datetime]:
    """The database's clock, as `database_now` reads it, when it has been set forward."""
    return lambda session: database_now(session) + by


class Seconds:
    """A clock that stands still unless the test lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def let_work_take(seconds: float, clock: Seconds, loops: LeaseLoops) -> None:
    """Let time pass in a piece of work of one loop, while the loop that watches for absences runs on."""
    for _ in range(10):
        clock.now += seconds / 10
        loops.extension.run_once()
