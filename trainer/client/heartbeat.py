"""The heartbeat of an attempt: calls that extend the lease, and that the service answers early with an order."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from trainer.client.attempt_messages import Progress
from trainer.client.errors import CallRefused, LeaseLost, ServiceUnreachable
from trainer.client.http import ServiceClient, backoff_delays, post_with_optional, with_alternatives
from trainer.client.listener import ServiceListener
from trainer.decisions import CONTINUE
from trainer.process_log.context import log_context

logger = logging.getLogger("paceline")

BEATS_PER_LEASE = 3
"""Two of them may get lost without losing the lease."""

MAX_WAIT_SECONDS = 60.0
"""The service holds no call for longer."""

ORDER_POLL_SECONDS = 1.0
"""After an order the service answers every call immediately. The calls go on at this interval, to hear of a kill."""


class HeartbeatThread(threading.Thread):
    """Makes one call after the other; the service holds each until it has an order or the next call is due.

    `progress()` returns what to tell of the attempt. `listener` gets no order, and no loss of the lease, after
    `close()`, which does not wait for the open call: that ends when the attempt ends.
    """

    def __init__(
        self,
        client: ServiceClient,
        trial: str,
        lease_seconds: float,
        listener: ServiceListener,
        progress: Callable[[], Progress] = Progress,
    ) -> None:
        super().__init__(name="paceline-heartbeat", daemon=True)
        self._client = client
        self._path = f"/v1/trials/{trial}/heartbeat"
        self._interval = min(lease_seconds / BEATS_PER_LEASE, MAX_WAIT_SECONDS)
        self._listener = listener
        self._progress = progress
        self._closed = threading.Event()
        self._log_fields = log_context.current()

    def run(self) -> None:
        log_context.begin(**self._log_fields)
        delays = backoff_delays()
        while not self._closed.is_set():
            started_at = time.monotonic()
            with log_context.request():
                try:
                    due = started_at + self._beat()
                    delays = backoff_delays()
                except ServiceUnreachable as error:
                    logger.warning("no heartbeat for %s: %s", self._path, error)
                    due = time.monotonic() + next(delays)
                except Exception:
                    # Without heartbeats the attempt would lose its lease, and no order would reach it.
                    logger.exception("a heartbeat for %s fails", self._path)
                    due = time.monotonic() + self._interval
            self._closed.wait(max(0.0, due - time.monotonic()))

    def close(self) -> None:
        self._closed.set()

    def _body(self, progress: Progress) -> dict[str, Any]:
        return {"wait_seconds": self._interval, **progress.to_json(), **with_alternatives(self._client)}

    def _beat(self) -> float:
        """Make one call; returns the seconds from its start to the next one. Raises ServiceUnreachable."""
        progress = self._progress()
        try:
            # A call that gets no answer must end in time for two more within the lease.
            post = partial(self._client.post, self._path, read_seconds=2 * self._interval)
            answer = post_with_optional(post, self._body(progress))
        except LeaseLost:
            if not self._closed.is_set():
                self.close()
                self._listener.on_lease_lost()
            return 0
        except CallRefused as refused:
            logger.warning("no heartbeat for %s: %s", self._path, refused)
            return self._interval
        assert answer is not None  # noqa: S101 - the wire promises no 204 here
        self._listener.on_progress_known(progress)
        decision = answer["decision"]
        if decision == CONTINUE:
            return self._interval
        if not self._closed.is_set():
            self._listener.on_order(decision, answer["reason"])
        return min(ORDER_POLL_SECONDS, self._interval)
