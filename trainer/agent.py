"""The process beside a Ray cluster: offers what is free to the service, and starts slots for what it is given.

It holds nothing that a new agent of the same name could not find again: slots report to the service by themselves, and
living ones are adopted.
"""

import logging
import signal
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayError

from trainer.calls import CallRefused, Service, ServiceFailed, ServiceUnreachable, pauses
from trainer.cluster import ClusterUnreachable, connect
from trainer.failures import LOST, PREEMPTED, headline
from trainer.fleet import Fleet

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
# How long a claim waits at the service: short while slots are busy, whose end changes the offer.
IDLE_WAIT_SECONDS = 2.0
BUSY_WAIT_SECONDS = 1.0
# At the end, for a claim that is under way: as long as it may wait, and for its answer to arrive.
LAST_CLAIM_SECONDS = IDLE_WAIT_SECONDS + 1.0
CONNECT_SECONDS = 30.0

Answer = dict[str, Any] | None


class AgentRefused(SystemExit):
    """The service does not let this agent work. Ends the process with this sentence, unless it is caught."""


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

    `token` is the agent's own. Slots without work close after `idle_seconds`. Raises ClusterUnreachable, also when the
    cluster is lost later, and AgentRefused.
    """
    stopping = stop or threading.Event()
    connect(ray_address, namespace, CONNECT_SECONDS)
    _heed_signals(stopping)  # after Ray, which has handlers of its own
    agent = Agent(name, service_url, token, idle_seconds)
    try:
        try:
            agent.run(stopping)
        finally:
            agent.close()
    except CallRefused as refused:
        raise AgentRefused(f"the service at {service_url} does not let agent {name} work: {refused}") from refused
    except RayError as error:
        raise ClusterUnreachable(f"the Ray cluster at {ray_address} is lost: {headline(error)}") from error
    finally:
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
        self._asked: Future[Answer] | None = None
        self._claims = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-claim")

    def run(self, stopping: threading.Event) -> None:
        self._fleet.adopt()
        while not stopping.wait(TICK_SECONDS if self._asked and not self._asked.done() else 0):
            for loss in self._fleet.refresh():
                self._give_up(loss.trial, loss.lease, LOST, "the slot that ran the attempt died")
            self._fleet.close_idle(self._idle_seconds)
            if self._asked is None:
                self._asked = self._claims.submit(self._claim, self._claim_body())
            elif self._asked.done():
                asked, self._asked = self._asked, None
                if (assignment := asked.result()) is not None:
                    logger.info("trial %s, attempt %d", assignment["trial"], assignment["attempt"])
                    self._fleet.take(assignment)

    def close(self) -> None:
        """Give running attempts back, and what a claim under way still brings; close all slots."""
        self._stopping.set()
        try:
            self._fleet.close(list(self._fleet.members.values()))
        finally:
            self._give_last_claim_back()
            self._claims.shutdown(wait=False)

    def _give_last_claim_back(self) -> None:
        if self._asked is None:
            return
        try:
            assignment = self._asked.result(LAST_CLAIM_SECONDS)
        except (NotYet, CallRefused) as error:
            logger.info("the last claim brought nothing: %s", error or "no answer in time")
            return
        if assignment is not None:
            why = "the agent was shut down before the attempt had started"
            self._give_up(assignment["trial"], assignment["lease"]["token"], PREEMPTED, why)

    def _claim_body(self) -> dict[str, Any]:
        running = [m.trial for m in self._fleet.members.values() if m.trial]
        return {
            "request_id": uuid.uuid4().hex,
            "nodes": self._fleet.offer(),
            "running": running,
            "wait_seconds": BUSY_WAIT_SECONDS if running else IDLE_WAIT_SECONDS,
        }

    def _claim(self, body: dict[str, Any]) -> Answer:
        """The same claim, again and again, until it is answered: an answer lost on the way is not lost for good."""
        said = False
        for pause in pauses():
            try:
                answer = self._service.post(f"/v1/agents/{self._name}/claim", body)
            except (ServiceUnreachable, ServiceFailed) as error:
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

    def _give_up(self, trial: str, lease: str, kind: str, why: str) -> None:
        """Say that an attempt is over, so that its trial need not wait for its lease to run out."""
        body = {"outcome": "failed", "error": {"kind": kind, "message": why}}
        try:
            Service(self._url, lease).post(f"/v1/trials/{trial}/finish", body)
        except (CallRefused, ServiceUnreachable) as problem:
            logger.info("the service will find out by itself that %s is over: %s", trial, problem)
