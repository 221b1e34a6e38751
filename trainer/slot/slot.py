"""The slot: a detached actor that runs one attempt after another on one worker group.

Its process hosts Ray Train's controller, so its death frees everything within a moment. It reports to the service by
itself and gets its next assignment from there, so an agent that dies does not disturb it.
"""

import asyncio
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import ray

from trainer.client.addresses import ServiceAddresses
from trainer.process_log.setup import LogSettings, set_up_logger
from trainer.ray_train.actor_call_retries import at_least_once
from trainer.ray_train.runners import FreshRunner, Runner, WarmRunner
from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.slot.assignment import Assignment, TrainerSpec
from trainer.slot.attempt.attempt_state import Preempted
from trainer.slot.attempt_executor import AttemptExecutor, SlotAvailability
from trainer.slot.attempt_planner import AttemptPlanner
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover
from trainer.slot.nodes.slot_nodes import SlotNodes
from trainer.slot.orphan_check import OrphanCheck
from trainer.slot.slot_status import SlotStatus
from trainer.slot.user_package import UserPackage
from trainer.slot.worker_message_handlers import WorkerMessageHandlers
from trainer.traces import tracing
from trainer.worker.messages import WorkerStarted

logger = logging.getLogger("paceline")

CLOSE_SECONDS = 8.0
REMOVAL_SECONDS = 2.0

END_SECONDS = 30.0
"""How long the cleanup of a slot that ends itself may take. A Ray that no longer knows the process may never answer."""
LAST_REMOVAL_SECONDS = 20.0
"""How long such a slot tries to remove checkpoints. It may end because the storage is away."""

SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval. The threads here often wait for each other; the default is ten times as long."""


class Slot(WorkerMessageHandlers):
    """Its first assignment decides what it can run: the same experiment, package and shape. A `spare` one has none yet.

    `log` has the fields of the agent's `LogSettings`, `traces` its variables OTEL_*, None without tracing.

    All `async` methods are called through Ray. None returns an ObjectRef to wait for, because its caller may die.
    """

    orphan_seconds: ClassVar[float] = 30.0
    """A slot without work closes itself when no agent has asked for its status for so long."""

    answer_seconds: ClassVar[float] = 300.0
    """How long new workers may take to answer, beside the waits for resources and for a runtime environment.

    They need seconds, or a minute on a busy node with slow discs.
    """

    def __init__(
        self,
        service_url: str,
        name: str,
        *,
        spare: bool = False,
        log: Mapping[str, str] | None = None,
        agent: str | None = None,
        traces: Mapping[str, str] | None = None,
        certificates: str | None = None,
    ) -> None:
        settings = LogSettings(**log or {})
        self._log_fields = {"agent": agent, "slot": name}
        set_up_logger(settings, "slot", **self._log_fields)
        if traces is not None:
            tracing.set_up_on_node("slot", traces)
        self._name = name
        self._spare = spare
        self._scaling: dict[str, Any] | None = None
        self._inbox: queue.Queue[Assignment | None] = queue.Queue()
        self._package = UserPackage(name)
        self._nodes = SlotNodes(ray.get_runtime_context().get_node_id())
        self._received_count = 0
        self._availability = SlotAvailability()
        self._has_told_no_room = False
        self._orphan_check = OrphanCheck(self.orphan_seconds)
        self._remover = CheckpointRemover()
        addresses = ServiceAddresses(service_url, certificates)
        self._handle = ray.get_runtime_context().current_actor
        planner = AttemptPlanner(name, self._handle, addresses, self._package, settings, self._log_fields)
        executor = AttemptExecutor(
            planner, self._nodes, self._availability, self._remover, self._make_runner, self._end, self.answer_seconds
        )
        super().__init__(executor)
        self._thread = threading.Thread(target=self._work, name="paceline-slot", daemon=True)
        sys.setswitchinterval(SWITCH_SECONDS)
        self._remover.start()
        self._thread.start()

    # Called by the agent.

    async def run(
        self,
        assignment: dict[str, Any],
        key: str,
        scaling: dict[str, Any],
        secrets: dict[str, str] | None = None,
    ) -> bool:
        """Accept an assignment; `key` names what it needs of a slot. False if the slot is busy or closing.

        `secrets`: the values for its `trainer.secrets`, also for the assignments that follow from the service.
        """
        self._received_count += 1
        if self._availability.takes_no_more or not self._executor.is_idle:
            return False
        self._scaling = scaling
        accepted = Assignment.from_json(assignment)
        self._executor.accept(accepted, key, secrets or {})
        self._inbox.put(accepted)
        return True

    async def status(self) -> dict[str, Any]:
        """Returns a `SlotStatus` as JSON."""
        self._orphan_check.asked()
        self._close_without_room()
        attempt, assignment, runner = self._attempt, self._executor.assignment, self._executor.runner
        return SlotStatus(
            name=self._name,
            pid=os.getpid(),
            key=self._executor.key,
            scaling=self._scaling,
            trial=assignment.trial if assignment else None,
            attempt=assignment.attempt if assignment else None,
            began=attempt is not None and bool(attempt.ranks.started),
            starting=self._executor.is_starting,
            idle_seconds=self._executor.idle_seconds,
            removing=self._remover.has_work,
            placement_group=(runner and runner.placement_group) or self._nodes.placement_group,
            nodes=sorted(self._nodes.used),
            given_count=self._received_count,
            draining=self._availability.is_draining,
            closing=self._availability.will_end,
            lost_count=self._executor.lost_count,
            bytes_without_room=self._executor.bytes_without_room,
            failed_disks=self._nodes.failed_disks_now(),
        ).to_json()

    def _close_without_room(self) -> None:
        """Close as the agent asks for the second time: it then has the first answer, by which it withholds the node."""
        if self._has_told_no_room:
            self._inbox.put(None)
        self._has_told_no_room = self._availability.has_no_room

    async def drain(self, nodes: list[str], grace_seconds: float) -> None:
        """These Ray nodes go away in `grace_seconds`. The call may be repeated.

        If this slot uses one of them, or comes to: its attempt leaves at its next checkpoint or its next report but
        one, is ended when the time is over, and fails as preempted; the slot then closes itself.
        """
        self._nodes.drain(nodes, grace_seconds)
        self._leave_drained_nodes()

    @at_least_once
    async def withhold(self, nodes: dict[str, float]) -> None:
        """No new attempt is to use these Ray nodes, each for so many seconds. A running one goes on there."""
        for node, seconds in nodes.items():
            self._nodes.withheld.add(node, seconds=seconds)

    async def close(self) -> None:
        """Give a running attempt back, end everything and clean up. The caller then kills the actor."""
        self._availability.is_closing = True
        attempt = self._attempt
        if attempt is not None:
            await asyncio.to_thread(attempt.end_now, Preempted())
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        await asyncio.to_thread(self._clean_up)

    @at_least_once
    async def until_closed(self) -> None:
        """It never returns. Callers notice the end of the slot's process by the failure of this call."""
        await asyncio.Event().wait()

    # Called by the workers, as what WorkerMessageHandlers has.

    @at_least_once
    async def worker_started(self, run: str, rank: int, fields: dict[str, Any]) -> None:
        started = WorkerStarted(**fields)
        self._nodes.workers.add(started.node)  # the late message of another attempt, too: the package is there
        if (attempt := self._attempt_of(run)) is not None:
            self._nodes.add_worker(started.node, started.placement_group)
            attempt.worker_started(rank, started)
        self._leave_drained_nodes()

    def _leave_drained_nodes(self) -> None:
        seconds_left = self._nodes.seconds_left()
        if seconds_left is None:
            return
        if not self._availability.is_draining:
            logger.info("slot %s closes: a node it uses is drained", self._name)
            self._availability.is_draining = True
            self._inbox.put(None)
        if (attempt := self._attempt) is not None:
            attempt.drain(self._nodes.drained, seconds_left)

    # The slot's own thread.

    def _work(self) -> None:
        """Serve, then end the process, also after an error: the slot would be of no more use."""
        try:
            if self._spare:
                self._executor.import_libraries()
            self._serve()
            if self._availability.is_closing:
                return  # the agent cleans up, and ends the process
            logger.info("slot %s closes itself: %s", self._name, self._why_closed())
            self._availability.is_closing = True
        except Exception:
            logger.exception("slot %s fails and closes", self._name)
        self._end()

    def _why_closed(self) -> str:
        if self._availability.why_broken is not None:
            return self._availability.why_broken
        if self._availability.has_no_room:
            return "its node has no room for what its workers need"
        return "drained" if self._availability.is_draining else "no work, no agent"

    def _end(self) -> None:
        """End the process by `os._exit`: after a restart of Ray's head, `ray.kill` has no effect."""
        arguments = (LAST_REMOVAL_SECONDS,)
        cleanup = threading.Thread(target=self._clean_up, args=arguments, name="paceline-clean-up", daemon=True)
        cleanup.start()
        cleanup.join(END_SECONDS)
        os._exit(0)

    def _serve(self) -> None:
        """Run one assignment after the other until the slot is to close, or has no agent."""
        while not self._executor.is_idle or not self._orphan_check.is_orphaned():
            try:
                assignment = self._inbox.get(timeout=self._orphan_check.interval)
            except queue.Empty:
                continue
            if assignment is None:
                return
            while assignment is not None:
                assignment = self._executor.execute(assignment)
            if self._availability.is_broken:
                return

    def _make_runner(self, trainer: TrainerSpec) -> Runner:
        if trainer.workers.is_elastic or (trainer.reuse_workers and BACKENDS[trainer.kind].is_warm):
            return WarmRunner(self._checkpoint_saved)
        return FreshRunner(self._handle)

    def _clean_up(self, removal_seconds: float = REMOVAL_SECONDS) -> None:
        self._executor.close()
        self._remover.close(removal_seconds)
        tracing.flush(REMOVAL_SECONDS)
        self._package.remove_from(self._nodes.workers)
