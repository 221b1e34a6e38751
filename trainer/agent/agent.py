"""The process beside a Ray cluster: offers what is free to the service, and starts slots for what it is given.

It holds nothing that a new agent of the same name could not find again: slots report to the service by themselves,
living ones are adopted, and what got lost on the way is found by comparing (`trainer.agent.audit`).
"""

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from trainer.agent.audit import Audit
from trainer.agent.cluster import ClusterUnreachable, connect
from trainer.agent.liveness_lock import LivenessLock
from trainer.agent.process_identity import Instance, instance_of, is_dead
from trainer.agent.slot_pool import Held, SlotPool
from trainer.client.http import AgentNameTaken, CallRefused, ServiceClient, ServiceFailed, ServiceUnreachable, pauses
from trainer.slot.checkpoint_removal import DirectoryRemover
from trainer.worker.failures import PREEMPTED, headline

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
# How long a claim waits at the service: short while slots are busy, whose end changes the offer.
IDLE_WAIT_SECONDS = 2.0
BUSY_WAIT_SECONDS = 1.0
# At the end, for a claim that is under way: as long as it may wait, and for its answer to arrive.
LAST_CLAIM_SECONDS = IDLE_WAIT_SECONDS + 1.0
# ... and to give the name back, which a service that is away takes back by itself in time.
LEAVE_SECONDS = 2.0
CONNECT_SECONDS = 30.0
# How long an assignment waits for a slot of its kind that is about to become idle; a new one takes longer to start.
SETTLE_SECONDS = 0.5
SETTLE_TICK_SECONDS = 0.02
AUDIT_SECONDS = 5.0

Answer = dict[str, Any] | None
Found = TypeVar("Found")


class AgentReplaced(RuntimeError):
    """Another agent has taken the name, while this one was not heard. The slots are that one's now."""


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
    state: Path | None = None,
    spare_slot: bool = False,
    stop: threading.Event | None = None,
) -> None:
    """Work for `service_url` on the cluster at `ray_address` until SIGTERM, SIGINT or `stop`.

    `token` is the agent's own. Slots without work close after `idle_seconds`; with `spare_slot` one is always ready to
    start the next experiment's first trial. While another agent works under this name, it waits for that one's end;
    what it leaves in the directory `state` tells its end to the next. Raises ClusterUnreachable, also when the cluster
    is lost later, AgentReplaced and AgentRefused.
    """
    stopping = stop or threading.Event()
    connect(ray_address, namespace, CONNECT_SECONDS)
    _heed_signals(stopping)  # after Ray, which has handlers of its own
    agent = Agent(
        name, service_url, token, SlotPool(name, service_url, spare=spare_slot), idle_seconds, LivenessLock(state)
    )
    try:
        _work(agent, stopping)
    except RayError as error:
        raise ClusterUnreachable(f"the Ray cluster at {ray_address} is lost: {headline(error)}") from error
    except AgentNameTaken as taken:
        raise AgentReplaced(f"agent {name} was not heard for long, and is replaced: {taken.detail}") from taken
    except CallRefused as refused:
        raise AgentRefused(f"the service at {service_url} does not let agent {name} work: {refused}") from refused
    finally:
        agent.leave()
    ray.shutdown()


def _work(agent: "Agent", stopping: threading.Event) -> None:
    """Slots are closed unless the cluster, and they with it, is gone, or the agent fails: a new one takes them over."""
    if not agent.take_name(stopping):
        return
    try:
        agent.run(stopping)
    except AgentNameTaken:
        raise
    except CallRefused:
        agent.close()
        raise
    agent.close()


def _heed_signals(stopping: threading.Event) -> None:
    def heed(number: int, _frame: FrameType | None) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        stopping.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, heed)
        signal.signal(signal.SIGINT, heed)


class Agent:
    def __init__(
        self, name: str, service_url: str, token: str | None, fleet: SlotPool, idle_seconds: float, signs: LivenessLock
    ) -> None:
        self._path = f"/v1/agents/{name}"
        self._url = service_url
        self._service = ServiceClient(service_url, token)
        self._idle_seconds = idle_seconds
        self._instance = instance_of(os.getpid())
        self._signs = signs
        self._fleet = fleet
        self._stopping = threading.Event()
        # One thread: the service is never asked what it holds while a claim is under way.
        self._calls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-agent")
        self._claimed: Future[Answer] | None = None
        self._came_at: float | None = None
        self._held: Future[set[Held]] | None = None
        self._audit: Audit | None = None
        self._audit_at = time.monotonic()
        # Found, and not yet told to the service; and whether any of its workers may have begun.
        self._lost: dict[Held, bool] = {}
        self._disposal: DirectoryRemover | None = None
        self._removed: set[str] = set()

    def take_name(self, stopping: threading.Event) -> bool:
        """Wait until no other agent works under the name; False if it is to stop before. Raises CallRefused.

        Until then no slot is touched: those of the other agent would be found under this name, too.
        """
        replaces, told = None, False
        self._signs.show(self._instance)
        for pause in pauses():
            taken = self._refused_name(replaces, stopping)
            if taken is None:
                if replaces is not None:
                    self._signs.forget(replaces)
                return not stopping.is_set()
            holder = taken.facts["holder"]
            replaces = holder if is_dead(holder) or self._signs.is_known_dead(holder) else None
            if replaces is None:
                logger.log(logging.DEBUG if told else logging.WARNING, "%s. It waits until then", taken.detail)
                told = True
                if stopping.wait(pause):
                    return False
        raise AssertionError("pauses() never ends")

    def _refused_name(self, replaces: Instance | None, stopping: threading.Event) -> AgentNameTaken | None:
        """None when the name is ours, or when it is to stop."""
        body: dict[str, Any] = {"request_id": uuid.uuid4().hex, "nodes": [], "instance": self._instance}
        claimed = self._calls.submit(self._claim, {**body, "replaces": replaces})
        while not wait([claimed], TICK_SECONDS).done:
            if stopping.is_set():
                return None
        try:
            claimed.result()
        except AgentNameTaken as taken:
            return taken
        return None

    def run(self, stopping: threading.Event) -> None:
        self._fleet.adopt()
        while not stopping.wait(self._pause()):
            self._lost |= self._fleet.refresh()
            self._fleet.close_idle(self._idle_seconds)
            for assignment in self._fleet.unheard():
                self._calls.submit(self._keep, assignment)
            self._compare()
            self._take_what_was_claimed()
            if self._claimed is None:
                self._ask()

    def _pause(self) -> float:
        if self._came_at is not None:
            return SETTLE_TICK_SECONDS
        return TICK_SECONDS if self._claimed and not self._claimed.done() else 0

    def close(self) -> None:
        """Give running attempts back, and what a claim under way still brings; close all slots."""
        self._stopping.set()
        try:
            self._fleet.close_all()
        finally:
            self._give_last_claim_back()

    def leave(self) -> None:
        """Give the name back, if the service can be told so at once, and make no further call."""
        self._stopping.set()
        wait([self._calls.submit(self._give_name_back)], LEAVE_SECONDS)
        self._calls.shutdown(wait=False, cancel_futures=True)

    def _give_name_back(self) -> None:
        try:
            self._service.post(f"{self._path}/leave", self._instance, read_seconds=LEAVE_SECONDS)
        except (CallRefused, ServiceUnreachable) as problem:
            logger.info("the service will find out by itself that this agent has left: %s", problem)
        else:
            self._signs.withdraw()

    def _compare(self) -> None:
        """Find the attempts that the service believes to run here and no slot runs."""
        if self._held is not None and self._held.done():
            held, self._held = self._held.result(), None
            self._audit = Audit(held, self._fleet.members.values())
        found = self._audit.lost(self._fleet.members) if self._audit is not None else None
        if found is not None:
            self._audit, self._audit_at = None, time.monotonic() + AUDIT_SECONDS
            self._lost = dict.fromkeys(found, True) | self._lost

    def _take_what_was_claimed(self) -> None:
        if self._claimed is None or not self._claimed.done():
            return
        assignment, self._came_at = self._claimed.result(), self._came_at or time.monotonic()
        if assignment is not None:
            waits = time.monotonic() < self._came_at + SETTLE_SECONDS
            if waits and self._fleet.unsettled(assignment, self._came_at):
                return
            logger.info("trial %s, attempt %d", assignment["trial"], assignment["attempt"])
            self._fleet.take(assignment)
        self._claimed = self._came_at = None

    def _ask(self) -> None:
        if self._held is None and self._audit is None and time.monotonic() >= self._audit_at:
            self._held = self._calls.submit(self._ask_what_is_held)
        lost, self._lost = self._lost, {}
        self._claimed = self._calls.submit(self._claim, self._claim_body(), lost)

    def _claim_body(self) -> dict[str, Any]:
        running = [member.runs[0] for member in self._fleet.members.values() if member.runs]
        return {
            "request_id": uuid.uuid4().hex,
            "nodes": self._fleet.offer(),
            "running": running,
            "instance": self._instance,
            "wait_seconds": BUSY_WAIT_SECONDS if running else IDLE_WAIT_SECONDS,
        }

    def _claim(self, body: dict[str, Any], lost: Mapping[Held, bool] = MappingProxyType({})) -> Answer:
        body = {**body, "lost": self._given_up(lost) if lost else []}
        return self._until_answered(lambda: self._service.post(f"{self._path}/claim", body))

    def _given_up(self, lost: Mapping[Held, bool]) -> list[dict[str, Any]]:
        """What is lost, but for what has ended, by a slot's own word, before it was missed."""
        still_held = sorted(lost.keys() & self._ask_what_is_held())
        for trial, attempt in still_held:
            logger.warning("no slot runs attempt %d of trial %s: it is given up", attempt, trial)
        return [{"trial": held[0], "attempt": held[1], "began": lost[held]} for held in still_held]

    def _keep(self, assignment: dict[str, Any]) -> None:
        """Extend the lease of an attempt for a slot that starts still. A lease that is lost, the slot will hear of."""
        try:
            ServiceClient(self._url, assignment["lease"]["token"]).post(
                f"/v1/trials/{assignment['trial']}/heartbeat", {}
            )
        except (CallRefused, ServiceUnreachable) as problem:
            logger.info("the lease of %s could not be extended: %s", assignment["trial"], problem)

    def _ask_what_is_held(self) -> set[Held]:
        answer = self._until_answered(lambda: self._service.get(f"{self._path}/attempts")) or {"attempts": []}
        self._remove(answer.get("obsolete", []))
        return {(one["trial"], one["attempt"]) for one in answer["attempts"]}

    def _remove(self, directories: Iterable[str]) -> None:
        """They are named again and again; once is enough."""
        for directory in directories:
            if self._disposal is None:
                self._disposal = DirectoryRemover()
                self._disposal.start()
            if directory not in self._removed:
                self._removed.add(directory)
                self._disposal.put(directory)

    def _until_answered(self, call: Callable[[], Found]) -> Found | None:
        """The same call, again and again: an answer lost on the way is not lost for good. None when it is over."""
        said = False
        for pause in pauses():
            try:
                answer = call()
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

    def _give_last_claim_back(self) -> None:
        if self._claimed is None:
            return
        try:
            assignment = self._claimed.result(LAST_CLAIM_SECONDS)
        except (NotYet, CallRefused) as error:
            logger.info("the last claim brought nothing: %s", error or "no answer in time")
            return
        if assignment is not None:
            self._give_back(assignment)

    def _give_back(self, assignment: dict[str, Any]) -> None:
        """Say that an attempt will not be started, so that its trial need not wait for its lease to run out."""
        message = "the agent was shut down before the attempt had started"
        body = {"outcome": "failed", "error": {"kind": PREEMPTED, "message": message}}
        try:
            ServiceClient(self._url, assignment["lease"]["token"]).post(
                f"/v1/trials/{assignment['trial']}/finish", body
            )
        except (CallRefused, ServiceUnreachable) as problem:
            logger.info("the service will find out by itself that %s is over: %s", assignment["trial"], problem)
