"""Finds calls that a filter on the way answers itself because of what they contain, while others get through."""

import contextlib
import time
from collections.abc import Callable

from trainer.client.errors import CallRefused, ForeignAnswer, ServiceUnreachable
from trainer.client.http import ServiceClient, with_alternatives


class FilterDetector:
    """Watches one call, which is repeated.

    The call counts as filtered if it gets foreign answers for `seconds`, and one more after the service has answered
    another call: `is_answered_otherwise()` makes that one.
    """

    def __init__(self, seconds: float, is_answered_otherwise: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._is_answered_otherwise = is_answered_otherwise
        self._since: float | None = None
        self._is_service_there = False

    def is_filtered(self, error: ServiceUnreachable) -> bool:
        """To be asked after each answer."""
        if not isinstance(error, ForeignAnswer):  # an outage, in which a gateway may answer for a while
            self._since, self._is_service_there = None, False
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since < self._seconds:
            return False
        if self._is_service_there:
            return True
        self._is_service_there = self._is_answered_otherwise()
        return False


def has_answer_to_heartbeat(client: ServiceClient, trial: str) -> bool:
    """Whether the service itself answers, also if it refuses the call. It extends the lease."""
    try:
        with contextlib.suppress(CallRefused):
            client.post(f"/v1/trials/{trial}/heartbeat", {"wait_seconds": 0, **with_alternatives(client)})
    except ServiceUnreachable:
        return False
    return True
