"""An assignment that no slot holds yet: until a slot does, the agent keeps its lease."""

import logging
from contextlib import AbstractContextManager
from typing import Any

from trainer.client.addresses import ServiceAddresses
from trainer.client.errors import CallRefused, ServiceUnreachable
from trainer.client.http import ServiceClient
from trainer.process_log.context import CREDENTIAL, log_context

logger = logging.getLogger(__name__)


class PendingAssignment:
    def __init__(self, addresses: ServiceAddresses, assignment: dict[str, Any]) -> None:
        self._addresses = addresses
        self._trial, self._attempt = assignment["trial"], assignment["attempt"]
        self._experiment = assignment["experiment_id"]
        self._token = assignment["lease"]["token"]

    def logged(self) -> AbstractContextManager[None]:
        """What is logged here shows the attempt, and never its token, whatever a library quotes."""
        fields = {"experiment": self._experiment, "trial": self._trial, "attempt": self._attempt}
        return log_context.bound(**fields, **{CREDENTIAL: self._token})

    def extend_lease(self) -> None:
        """For a slot that still starts. If the lease is lost, the slot will learn it."""
        with self.logged(), log_context.request():
            try:
                self._post("heartbeat", {})
            except (CallRefused, ServiceUnreachable) as problem:
                logger.info("the lease of %s could not be extended: %s", self._trial, problem)

    def refuse(self, kind: str, message: str) -> None:
        """Report that the attempt will not start, so that its trial need not wait until the lease expires."""
        error = {"kind": kind, "message": message, "began": False}
        with self.logged(), log_context.request():
            try:
                self._post("finish", {"outcome": "failed", "error": error})
            except (CallRefused, ServiceUnreachable) as problem:
                logger.info("trial %s could not be given back; its lease will expire: %s", self._trial, problem)

    def _post(self, what: str, body: dict[str, Any]) -> None:
        ServiceClient(self._addresses, self._token).post(f"/v1/trials/{self._trial}/{what}", body)
