"""The agent: a process beside a Ray cluster that claims trials for it and starts slots for them.

It has no state that a new agent of the same name could not restore: slots report to the service by themselves, living
slots are adopted, and the audit (`trainer.agent.lost_attempts`) finds attempts that were lost on the way.
"""

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from trainer.agent.checkpoint_cleanup import CheckpointCleanup
from trainer.agent.cluster import ClusterUnreachable, connect
from trainer.agent.liveness_lock import LivenessLock
from trainer.agent.lost_attempts import LostAttemptAudit
from trainer.agent.pending_assignment import PendingAssignment
from trainer.agent.process_identity import Instance, instance_of, is_dead
from trainer.agent.secret_sources import SecretNotAvailable, SecretSources
from trainer.agent.slot_pool.pooled_slot import AttemptId
from trainer.agent.slot_pool.slot_pool import IDLE_SLOT_SECONDS, LostAttempts, SlotPool
from trainer.agent.storage_probe import StorageProbe
from trainer.client.addresses import ServiceAddresses
from trainer.client.errors import AgentNameTaken, CallRefused, ServiceFailed, ServiceUnreachable
from trainer.client.http import WARNING_SECONDS, ServiceClient, backoff_delays
from trainer.process_log.context import log_context
from trainer.worker.failures import CANNOT_START, PREEMPTED, headline

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2

IDLE_WAIT_SECONDS = 2.0
"""How long a claim waits at the service."""

BUSY_WAIT_SECONDS = 1.0
"""How long it waits while slots are busy: when one becomes idle, the next claim offers its resources."""

LAST_CLAIM_SECONDS = IDLE_WAIT_SECONDS + 1.0
"""When the agent ends: the time to wait for the answer to a pending claim."""

LEAVE_SECONDS = 2.0
"""When the agent ends: the time to release its name. If the service is unreachable, the name's lease expires."""

SETTLE_SECONDS = 0.5
"""How long an assignment waits for a slot that may become idle soon. Starting a new slot takes longer."""

FIRST_PROBE_SECONDS = 10.0
"""How long the first claim waits for the storage."""

SETTLE_TICK_SECONDS = 0.02
AUDIT_SECONDS = 5.0

Answer = dict[str, Any] | None
Result = TypeVar("Result")


class AgentReplaced(RuntimeError):
    """Another agent has taken the name, because the service did not hear from this one. It has the slots now."""


class AgentRefused(SystemExit):
    """The service does not let this agent work. Ends the process with this message, unless it is caught."""


def run_agent(
    service_url: str,
    name: str,
    ray_address: str,
    namespace: str = "paceline",
    token: str | None = None,
    *,
    certificates: str | None = None,
    idle_seconds: float = IDLE_SLOT_SECONDS,
    state: Path | None = None,
    spare_slot: bool = False,
    prestarted: int = 0,
    preloaded: Sequence[str] = (),
    stop: threading.Event | None = None,
) -> None:
    """Work for `service_url` on the cluster at `ray_address` until SIGTERM, SIGINT or `stop`.

    `service_url`, `certificates`: as for ServiceAddresses. `token` is the agent's own. Slots without work close after
    `idle_seconds`; with `spare_slot` one is always ready for the next experiment's first trial, and `prestarted` idle
    worker processes on each node, which come from the nodes' fork servers; those have also imported the modules
    `preloaded`. While another agent works under this name, this one waits for its end. `state` is the directory of the
    liveness lock, which tells later agents whether this one is dead. Raises ClusterUnreachable, also when the cluster
    is lost later, AgentReplaced and AgentRefused.
    """
    stopping = stop or threading.Event()
    connect(ray_address, namespace)
    _install_signal_handlers(stopping)  # after Ray, which installs its own
    addresses = ServiceAddresses(service_url, certificates)
    pool = SlotPool(name, addresses, spare=spare_slot, prestarted=prestarted, preloaded=preloaded)
    pool.prestart.start()
    agent = Agent(name, addresses, token, pool, idle_seconds, LivenessLock(state))
    try:
        _work(agent, stopping)
    except RayError as error:
        raise ClusterUnreachable(f"the Ray cluster at {ray_address} is lost: {headline(error)}") from error
    except AgentNameTaken as taken:
        raise AgentReplaced(
            f"agent {name} lost contact with the service for too long and was replaced: {taken.detail}"
        ) from taken
    except CallRefused as refused:
        raise AgentRefused(f"the service at {service_url} does not let agent {name} work: {refused}") from refused
    finally:
        pool.prestart.stop()
        agent.leave()
    ray.shutdown()


def _work(agent: "Agent", stopping: threading.Event) -> None:
    """Close the slots at the end, unless the cluster is gone or the agent fails: a new agent then adopts them."""
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


def _install_signal_handlers(stopping: threading.Event) -> None:
    def handle(number: int, _frame: FrameType | None) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        stopping.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)


class Agent:
    def __init__(
        self,
        name: str,
        addresses: ServiceAddresses,
        token: str | None,
        pool: SlotPool,
        idle_seconds: float,
        liveness_lock: LivenessLock,
    ) -> None:
        self._path = f"/v1/agents/{name}"
        self._addresses = addresses
        self._token = token
        self._client = ServiceClient(addresses, token)
        self._idle_seconds = idle_seconds
        self._instance = instance_of(os.getpid())
        self._liveness_lock = liveness_lock
        self._secret_sources = SecretSources.from_env(name)
        self._pool = pool
        self._stopping = threading.Event()
        # One thread, so that the service is never asked which attempts the agent holds while a claim is under way.
        self._calls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-agent")
        # Another for attempts without a slot: their leases must not wait for a claim that gets no answer.
        self._pending_calls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-pending")
        self._claim_call: Future[Answer] | None = None
        self._claimed_at: float | None = None
        self._held_call: Future[set[AttemptId]] | None = None
        self._audit: LostAttemptAudit | None = None
        self._audit_at = time.monotonic()
        self._lost: LostAttempts = {}  # not yet reported to the service
        self._storage_probe = StorageProbe(name)
        self._cleanup = CheckpointCleanup(self._post_deletion_results)

    def take_name(self, stopping: threading.Event) -> bool:
        """Wait until no other agent works under the name; False if `stopping` is set before. Raises CallRefused.

        Until then no slot is touched: the other agent's slots have this name, too.
        """
        replaces, has_warned = None, False
        self._liveness_lock.acquire(self._instance)
        for delay in backoff_delays():
            taken = self._try_name(replaces, stopping)
            if taken is None:
                if replaces is not None:
                    self._liveness_lock.remove_dead(replaces)
                return not stopping.is_set()
            holder = taken.facts["holder"]
            replaces = holder if is_dead(holder) or self._liveness_lock.is_known_dead(holder) else None
            if replaces is None:
                (logger.debug if has_warned else logger.warning)("%s. This agent waits until then", taken.detail)
                has_warned = True
                if stopping.wait(delay):
                    return False
        raise AssertionError("backoff_delays() never ends")

    def _try_name(self, replaces: Instance | None, stopping: threading.Event) -> AgentNameTaken | None:
        """None when this agent has the name, or is stopping."""
        body: dict[str, Any] = {"request_id": uuid.uuid4().hex, "nodes": [], "instance": self._instance}
        call = self._calls.submit(self._claim, {**body, "replaces": replaces})
        while not wait([call], TICK_SECONDS).done:
            if stopping.is_set():
                return None
        try:
            call.result()
        except AgentNameTaken as taken:
            return taken
        return None

    def run(self, stopping: threading.Event) -> None:
        self._pool.adopt()
        self._check_storage(stopping)
        while not stopping.wait(self._tick_seconds()):
            self._lost |= self._pool.refresh()
            if self._pool.take_losses():
                self._storage_probe.check_now(self._pool.take_bytes_without_room())
            self._pool.close_idle(self._idle_seconds)
            for assignment in self._pool.leases_to_extend():
                self._pending_calls.submit(self._pending(assignment).extend_lease)
            self._audit_attempts()
            self._run_claimed()
            if self._claim_call is None and self._storage_probe.is_settled:
                self._start_claim()

    def _check_storage(self, stopping: threading.Event) -> None:
        """Know whether checkpoints can be saved before the first trial is claimed."""
        self._storage_probe.start()
        self._cleanup.start()
        first = self._calls.submit(self._fetch_held_attempts)
        while not wait([first], TICK_SECONDS).done and not stopping.is_set():
            pass
        if first.done():
            first.result()
            self._storage_probe.await_first(FIRST_PROBE_SECONDS)

    def _tick_seconds(self) -> float:
        if self._claimed_at is not None:
            return SETTLE_TICK_SECONDS
        return TICK_SECONDS if self._claim_call and not self._claim_call.done() else 0

    def close(self) -> None:
        """Give back the running attempts; close all slots."""
        self._stopping.set()
        self._pool.close_all()

    def leave(self) -> None:
        """Release the name, if the service answers in time, give the last claim back, and make no further call.

        In this order, because the service then answers a claim that waits. One that it receives only after the release
        takes the name again, so that is released then.
        """
        self._stopping.set()
        claims = self._claim_call is not None and not self._claim_call.done()
        beside_the_claim = ThreadPoolExecutor(max_workers=1)
        released = beside_the_claim.submit(self._release_name)
        wait([released], LEAVE_SECONDS)
        beside_the_claim.shutdown(wait=False)
        self._give_last_claim_back()
        if claims and released.done() and released.result():
            self._release_name()
        for calls in (self._calls, self._pending_calls):
            calls.shutdown(wait=False, cancel_futures=True)

    def _release_name(self) -> bool:
        """Return whether the service has answered."""
        try:
            client = ServiceClient(self._addresses, self._token)  # the other one may be in use
            client.post(f"{self._path}/leave", self._instance, read_seconds=LEAVE_SECONDS)
        except (CallRefused, ServiceUnreachable) as problem:
            logger.info("this agent's name could not be released; its lease will expire: %s", problem)
            return False
        self._liveness_lock.release()
        return True

    def _audit_attempts(self) -> None:
        """Find the attempts that the service believes to run here and no slot runs."""
        if self._held_call is not None and self._held_call.done():
            held, self._held_call = self._held_call.result(), None
            self._audit = LostAttemptAudit(held, self._pool.slots.values())
        found = self._audit.lost(self._pool.slots) if self._audit is not None else None
        if found is not None:
            self._audit, self._audit_at = None, time.monotonic() + AUDIT_SECONDS
            self._lost = dict.fromkeys(found, True) | self._lost

    def _run_claimed(self) -> None:
        """Run the claimed assignment, once no slot is about to become idle for it."""
        if self._claim_call is None or not self._claim_call.done():
            return
        assignment, self._claimed_at = self._claim_call.result(), self._claimed_at or time.monotonic()
        if assignment is not None:
            has_time = time.monotonic() < self._claimed_at + SETTLE_SECONDS
            if has_time and self._pool.should_wait(assignment, self._claimed_at):
                return
            with self._pending(assignment).logged():
                logger.info("trial %s, attempt %d", assignment["trial"], assignment["attempt"])
                self._run(assignment)
        self._claim_call = self._claimed_at = None

    def _run(self, assignment: dict[str, Any]) -> None:
        try:
            secrets = self._secret_sources.resolve(assignment)
        except SecretNotAvailable as problem:
            logger.warning("trial %s cannot start: %s", assignment["trial"], problem)
            self._calls.submit(self._pending(assignment).refuse, CANNOT_START, str(problem))
        else:
            self._pool.run(assignment, secrets)

    def _pending(self, assignment: dict[str, Any]) -> PendingAssignment:
        return PendingAssignment(self._addresses, assignment)

    def _start_claim(self) -> None:
        if self._held_call is None and self._audit is None and time.monotonic() >= self._audit_at:
            self._held_call = self._calls.submit(self._fetch_held_attempts)
        lost, self._lost = self._lost, {}
        self._claim_call = self._calls.submit(self._claim, self._claim_body(), lost)

    def _claim_body(self) -> dict[str, Any]:
        running = [slot.runs[0] for slot in self._pool.slots.values() if slot.runs]
        body = {
            "request_id": uuid.uuid4().hex,
            "nodes": self._pool.offer().nodes(),
            "running": running,
            "instance": self._instance,
            "wait_seconds": BUSY_WAIT_SECONDS if running else IDLE_WAIT_SECONDS,
        }
        error = self._storage_probe.error
        return body if error is None else {**body, "storage_error": error}

    def _claim(self, body: dict[str, Any], lost: LostAttempts | None = None) -> Answer:
        body = {**body, "lost": self._still_held(lost) if lost else []}
        return self._until_answered(lambda: self._client.post(f"{self._path}/claim", body))

    def _still_held(self, lost: LostAttempts) -> list[dict[str, Any]]:
        """The lost attempts, without those that have ended before, as their slots have reported to the service."""
        held = sorted(lost.keys() & self._fetch_held_attempts())
        for trial, attempt in held:
            with log_context.bound(trial=trial, attempt=attempt):
                logger.warning("no slot runs attempt %d of trial %s: it is reported as lost", attempt, trial)
        return [{"trial": one[0], "attempt": one[1], "began": lost[one]} for one in held]

    def _fetch_held_attempts(self) -> set[AttemptId]:
        """The attempts that the service believes to run here. Its answer also says what else the agent is to do."""
        answer = self._until_answered(lambda: self._client.get(f"{self._path}/attempts")) or {"attempts": []}
        self._storage_probe.set_location(answer.get("storage"))
        self._cleanup.apply(answer)
        return {(one["trial"], one["attempt"]) for one in answer["attempts"]}

    def _post_deletion_results(self, results: dict[str, Any]) -> None:
        self._until_answered(lambda: self._client.post(f"{self._path}/deletions", results))

    def _until_answered(self, call: Callable[[], Result]) -> Result | None:
        """Repeat the call, so that an answer that is lost on the way comes again. None when the agent stops."""
        warning_due = 0.0
        with log_context.request():
            for delay in backoff_delays():
                try:
                    answer = call()
                except (ServiceUnreachable, ServiceFailed) as error:
                    if time.monotonic() >= warning_due:
                        logger.warning("%s; the agent tries again until the call succeeds", error)
                        warning_due = time.monotonic() + WARNING_SECONDS
                    if self._stopping.wait(delay):
                        return None
                else:
                    if warning_due:
                        logger.info("%s answers calls again", self._addresses.current)
                    return answer
        raise AssertionError("backoff_delays() never ends")

    def _give_last_claim_back(self) -> None:
        if self._claim_call is None:
            return
        try:
            assignment = self._claim_call.result(LAST_CLAIM_SECONDS)
        except (NotYet, CallRefused) as error:
            logger.info("the last claim got no assignment: %s", error or "no answer in time")
            return
        if assignment is not None:
            self._pending(assignment).refuse(PREEMPTED, "the agent was shut down before the attempt had started")
