"""The process beside a Ray cluster: offers what is free to the service, and starts slots for what it is given.

It holds nothing that a new agent of the same name could not find again: slots report to the service by themselves, and
living ones are adopted.
"""

import logging
import signal
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import ray

from trainer.calls import CallRefused, LeaseLost, Service, ServiceUnreachable, pauses
from trainer.cluster import connect
from trainer.fleet import Fleet, Loss

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
# How long a claim waits at the service: short while slots are busy, whose end changes the offer.
IDLE_WAIT_SECONDS = 5.0
BUSY_WAIT_SECONDS = 1.0
CONNECT_SECONDS = 30.0


def run_agent(
    service_url: str,
    name: str,
    ray_address: str,
    namespace: str = "paceline",
    token: str | None = None,
    *,
    idle_seconds: float = 5.0,
    stop: threading.Event | None = None,
) -> None:
    """Work for `service_url` on the cluster at `ray_address` until SIGTERM, SIGINT or `stop`.

    `token` is the agent's own. Slots without work close after `idle_seconds`. Raises ClusterUnreachable.
    """
    stopping = stop or threading.Event()
    connect(ray_address, namespace, CONNECT_SECONDS)
    _heed_signals(stopping)  # after Ray, which has handlers of its own
    agent = Agent(name, service_url, token, idle_seconds)
    try:
        agent.run(stopping)
    finally:
        agent.close()
        ray.shutdown()


def _heed_signals(stopping: threading.Event) -> None:
    def heed(number: int, _frame: FrameType | None) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        stopping.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, heed)
        signal.signal(signal.SIGINT, heed)


class Agent:
    def __init__(self, name: str, service_url: str, token: str | None, idle_seconds: float) -> None:
        self._name = name
        self._url = service_url
        self._service = Service(service_url, token)
        self._idle_seconds = idle_seconds
        self._fleet = Fleet(name, service_url)
        self._stopping = threading.Event()
        self._claims = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-claim")

    def run(self, stopping: threading.Event) -> None:
        self._fleet.adopt()
        claim: Future[dict[str, Any] | None] | None = None
        while not stopping.wait(TICK_SECONDS if claim and not claim.done() else 0):
            for loss in self._fleet.refresh():
                self._tell_loss(loss)
            self._fleet.close_idle(self._idle_seconds)
            if claim is None:
                claim = self._claims.submit(self._claim, self._claim_body())
            elif claim.done():
                assignment, claim = claim.result(), None
                if assignment is not None:
                    logger.info("trial %s, attempt %d", assignment["trial"], assignment["attempt"])
                    self._fleet.take(assignment)

    def close(self) -> None:
        """Give running attempts back and close all slots."""
        self._stopping.set()
        self._claims.shutdown(wait=False, cancel_futures=True)
        self._fleet.close(list(self._fleet.members.values()))

    def _claim_body(self) -> dict[str, Any]:
        running = [m.trial for m in self._fleet.members.values() if m.trial]
        return {
            "request_id": uuid.uuid4().hex,
            "nodes": self._fleet.offer(),
            "running": running,
            "wait_seconds": BUSY_WAIT_SECONDS if running else IDLE_WAIT_SECONDS,
        }

    def _claim(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The same claim, again and again, until it is answered: an answer lost on the way is not lost for good."""
        said = False
        for pause in pauses():
            try:
                answer = self._service.post(f"/v1/agents/{self._name}/claim", body)
            except ServiceUnreachable as error:
                if not said:
                    logger.warning("%s; trying again until it does", error)
                said = True
                if self._stopping.wait(pause):
                    return None
                continue
            if said:
                logger.info("%s answers again", self._url)
            return answer
        raise AssertionError("pauses() never ends")

    def _tell_loss(self, loss: Loss) -> None:
        """Say that a slot died, so that its trial need not wait for its lease to run out."""
        error = {"kind": "lost", "message": "the slot that ran the attempt died"}
        try:
            Service(self._url, loss.lease).post(
                f"/v1/trials/{loss.trial}/finish", {"outcome": "failed", "error": error}
            )
        except (LeaseLost, CallRefused, ServiceUnreachable) as problem:
            logger.info("the service will find out by itself that %s is lost: %s", loss.trial, problem)
