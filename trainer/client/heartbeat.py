"""The line that an attempt keeps open to the service: it extends the lease, and orders arrive on it at once."""

import logging
import threading
import time
from collections.abc import Callable

from trainer.client.http import CallRefused, LeaseLost, ServiceClient, ServiceUnreachable, pauses

logger = logging.getLogger("paceline")

# Of three heartbeats in a lease's time, two may get lost. The service holds no call for longer than a minute.
BEATS_IN_A_LEASE = 3
LONGEST_WAIT_SECONDS = 60.0
# A stop once heard is said again by every further call, at once: how soon a kill that follows it is heard.
AFTER_AN_ORDER_SECONDS = 1.0

CONTINUE = "continue"


class Heartbeat(threading.Thread):
    """One call after the other, each held by the service until it has an order or the next call is due.

    `on_order(decision, reason)` and `on_lease_lost()` are called from this thread; after `close()`, which waits for
    nothing, neither is. The call that is open then ends by itself, because the attempt does.
    """

    def __init__(
        self,
        service: ServiceClient,
        trial: str,
        lease_seconds: float,
        on_order: Callable[[str, str | None], None],
        on_lease_lost: Callable[[], None],
    ) -> None:
        super().__init__(name="paceline-heartbeat", daemon=True)
        self._service = service
        self._path = f"/v1/trials/{trial}/heartbeat"
        self._every = min(lease_seconds / BEATS_IN_A_LEASE, LONGEST_WAIT_SECONDS)
        self._on_order = on_order
        self._on_lease_lost = on_lease_lost
        self._over = threading.Event()

    def run(self) -> None:
        tries = pauses()
        while not self._over.is_set():
            began = time.monotonic()
            try:
                due = began + self._beat()
                tries = pauses()
            except ServiceUnreachable as error:
                logger.warning("no heartbeat for %s: %s", self._path, error)
                due = time.monotonic() + next(tries)
            self._over.wait(max(0.0, due - time.monotonic()))

    def close(self) -> None:
        self._over.set()

    def _beat(self) -> float:
        """Make one call; returns how long after its beginning the next is due. Raises ServiceUnreachable."""
        try:
            # Twice the time: a call that the network has swallowed must not cost the lease.
            answer = self._service.post(self._path, {"wait_seconds": self._every}, read_seconds=2 * self._every) or {}
        except LeaseLost:
            if not self._over.is_set():
                self.close()
                self._on_lease_lost()
            return 0
        except CallRefused as refused:
            logger.warning("no heartbeat for %s: %s", self._path, refused)
            return self._every
        decision = answer.get("decision", CONTINUE)
        if decision == CONTINUE:
            return self._every
        if not self._over.is_set():
            self._on_order(decision, answer.get("reason"))
        return min(AFTER_AN_ORDER_SECONDS, self._every)
