"""The service's own clock, injected so that tests can set it. Leases use the database's clock instead."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)
