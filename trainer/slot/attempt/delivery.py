"""An attempt's calls to the service: reports, logs, heartbeat and the outcome."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from trainer.client.addresses import ServiceAddresses
from trainer.client.attempt_messages import FinishBody, Progress
from trainer.client.errors import CallRefused, LeaseLost, ServiceUnreachable
from trainer.client.finish import post_finish
from trainer.client.heartbeat import HeartbeatThread
from trainer.client.http import ServiceClient, post_with_optional, with_alternatives
from trainer.client.listener import ServiceListener
from trainer.client.log_outbox import LogOutbox
from trainer.client.outbox import ReportOutbox
from trainer.process_log.context import log_context
from trainer.slot.assignment import Assignment

logger = logging.getLogger("paceline")

GIVE_BACK_SECONDS = 3.0
"""How long an attempt that is given back tries to reach the service; its lease ends the attempt otherwise."""


class Delivery:
    """The outboxes of reports and logs, and the heartbeat: threads that have a client each, which is one connection."""

    def __init__(
        self,
        assignment: Assignment,
        addresses: ServiceAddresses,
        listener: ServiceListener,
        progress: Callable[[], Progress],
    ) -> None:
        self._run = assignment.run_name
        self._trial = assignment.trial

        def client() -> ServiceClient:
            return ServiceClient(addresses, assignment.lease_token)

        self.client = client()
        self.reports = ReportOutbox(client(), assignment.trial, listener)
        self.logs = LogOutbox(client(), assignment.trial, listener.on_lease_lost, listener.on_log_room)
        self._heartbeat = HeartbeatThread(client(), assignment.trial, assignment.lease_seconds, listener, progress)
        self._first_to_tell_ending = threading.Lock()

    def start(self) -> None:
        for thread in (self.reports, self.logs, self._heartbeat):
            thread.start()

    def tell_ending(self) -> None:
        """Tell the service that the attempt is ending. A heartbeat tells it, too, but may not be due for long.

        From any thread. Only the first call has an effect.
        """
        if not self._first_to_tell_ending.acquire(blocking=False):
            return
        body = {"is_ending": True, **with_alternatives(self.client)}
        with log_context.request():
            try:
                self.client.post(f"/v1/trials/{self._trial}/heartbeat", body)
            except (LeaseLost, CallRefused, ServiceUnreachable) as error:
                logger.warning("the service does not know yet that %s is ending: %s", self._run, error)

    def flush(self, seconds: float | None) -> None:
        """Wait until all reports are delivered, for at most `seconds`, and then as long for the logs."""
        if not self.reports.flush(seconds) or not self.logs.flush(seconds):
            self.logs.close()
        self.logs.mark_missing(self.client)

    def close(self) -> None:
        """Deliver nothing more but the outcome."""
        self._heartbeat.close()
        self.reports.close()
        self.logs.close()

    def finish(self, body: FinishBody, seconds: float | None) -> dict[str, Any] | None:
        """Send the outcome, for at most `seconds`; returns the next assignment, if the service gave one."""
        given_up = threading.Event()
        if seconds is not None:
            threading.Timer(seconds, given_up.set).start()
        finish = partial(post_finish, self.client, self._trial, cancelled=given_up)
        with log_context.request():
            try:
                answer = post_with_optional(finish, body.to_json())
            except (LeaseLost, CallRefused, ServiceUnreachable) as error:
                logger.warning("the outcome of %s could not be delivered: %s", self._run, error)
                return None
        following: dict[str, Any] | None = (answer or {}).get("next")
        return following
