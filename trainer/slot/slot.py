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
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import ray
from ray.exceptions import RayError

from trainer.client.addresses import ServiceAddresses
from trainer.client.http import CallRefused, ServiceFailed, ServiceUnreachable
from trainer.process_log.context import CREDENTIAL, log_context
from trainer.process_log.setup import LogSettings, set_up_logger
from trainer.ray_train.backends import BACKENDS
from trainer.ray_train.runners import FreshRunner, Runner, WarmRunner
from trainer.slot.assignment import Assignment, TrainerSpec
from trainer.slot.attempt import Attempt
from trainer.slot.attempt_state import Preempted
from trainer.slot.checkpoint_removal import DirectoryRemover
from trainer.slot.dead_workers import remains_of, remove_working_directories
from trainer.slot.job import Host
from trainer.slot.loaded_libraries import LoadedLibraries
from trainer.slot.orphan_check import OrphanCheck
from trainer.slot.outcome import Outcome
from trainer.slot.slot_nodes import SlotNodes
from trainer.slot.start_limit import WorkersNotStarted, start_limit, start_limited
from trainer.slot.user_package import UserPackage
from trainer.slot.validation_task import validation_starter
from trainer.slot.worker_calls import WorkerCalls
from trainer.slot.worker_reuse import WorkerReuse
from trainer.traces import tracing
from trainer.worker.failures import CANNOT_START, LOST, Failure, is_from_restarted_head
from trainer.worker.masker import Masker
from trainer.worker.messages import WorkerStarted
from trainer.worker.session import run_job, train_function

logger = logging.getLogger("paceline")

CLOSE_SECONDS = 8.0
REMOVAL_SECONDS = 2.0

SHUTDOWN_SECONDS = 10.0
"""How long Ray may take to shut down a run that has succeeded. It usually takes a twentieth of a second."""

END_SECONDS = 30.0
"""How long the cleanup of a slot that ends itself may take. A Ray that no longer knows the process may never answer."""
LAST_REMOVAL_SECONDS = 20.0
"""How long such a slot tries to remove checkpoints. It may end because the storage is away."""

SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval. The threads here often wait for each other; the default is ten times as long."""


class Slot(WorkerCalls):
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
    ) -> None:
        settings = LogSettings(**log or {})
        self._log_fields = {"agent": agent, "slot": name}
        set_up_logger(settings, "slot", **self._log_fields)
        if traces is not None:
            tracing.set_up_on_node("slot", traces)
        self._addresses = ServiceAddresses(service_url)
        self._name = name
        self._spare = spare
        self._key: str | None = None
        self._scaling: dict[str, Any] | None = None
        self._secrets: dict[str, str] = {}
        self._inbox: queue.Queue[Assignment | None] = queue.Queue()
        self._received: Assignment | None = None
        self._runner: Runner | None = None
        self._code = ray.put(run_job)
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-finish")
        self._package = UserPackage(name)
        self._nodes = SlotNodes(ray.get_runtime_context().get_node_id())
        self._placement_group: str | None = None
        self._received_count = 0
        self._worker_reuse = WorkerReuse()
        self._idle_since: float | None = time.monotonic()
        self._orphan_check = OrphanCheck(self.orphan_seconds)
        self._is_closing = False
        self._is_draining = False
        self._is_broken = False
        self._lost_count = 0
        self._libraries = LoadedLibraries()
        self._remover = DirectoryRemover()
        self._handle = ray.get_runtime_context().current_actor
        self._host = Host(self._handle, self._package, settings, self._log_fields)
        self._loop: asyncio.AbstractEventLoop | None = None
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
        if self._takes_no_more or self._idle_since is None:
            return False
        self._key, self._scaling, self._secrets = key, scaling, secrets or {}
        log_context.mask = Masker(self._secrets.values()).mask
        self._idle_since, self._received = None, Assignment.from_json(assignment)
        self._loop = asyncio.get_running_loop()
        self._inbox.put(self._received)
        return True

    async def status(self) -> dict[str, Any]:
        """The keys are a contract with agents of other versions, which adopt this slot."""
        self._orphan_check.asked()
        attempt = self._attempt
        assignment = attempt.assignment if attempt else self._received
        return {
            "name": self._name,
            "pid": os.getpid(),
            "key": self._key,
            "scaling": self._scaling,
            "trial": assignment.trial if assignment else None,
            "attempt": assignment.attempt if assignment else None,
            "began": attempt is not None and bool(attempt.ranks.started),
            "idle_seconds": None if self._idle_since is None else time.monotonic() - self._idle_since,
            "placement_group": (self._runner and self._runner.placement_group) or self._placement_group,
            "nodes": sorted(self._nodes.used),
            "given_count": self._received_count,
            "draining": self._is_draining,
            "closing": self._is_closing or self._is_broken,
            "lost_count": self._lost_count,
        }

    async def drain(self, nodes: list[str], grace_seconds: float) -> None:
        """These Ray nodes go away in `grace_seconds`. The call may be repeated.

        If this slot uses one of them, or comes to: its attempt leaves at its next report, is ended when the time is
        over, and fails as preempted; the slot then closes itself.
        """
        self._nodes.drain(nodes, grace_seconds)
        self._leave_drained_nodes()

    async def close(self) -> None:
        """Give a running attempt back, end everything and clean up. The caller then kills the actor."""
        self._is_closing = True
        attempt = self._attempt
        if attempt is not None:
            await asyncio.to_thread(attempt.end_now, Preempted())
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        await asyncio.to_thread(self._clean_up)

    async def until_closed(self) -> None:
        """Never returns: what depends on this slot waits for the call to fail."""
        await asyncio.Event().wait()

    # Called by the workers and by Ray's controller, as what WorkerCalls has.

    async def worker_started(self, run: str, rank: int, fields: dict[str, Any]) -> None:
        started = WorkerStarted(**fields)
        self._nodes.workers.add(started.node)
        self._placement_group = started.placement_group
        self._leave_drained_nodes()
        if (attempt := self._attempt_of(run)) is not None:
            attempt.worker_started(rank, started)

    async def secrets(self, run: str) -> dict[str, str]:
        """The values that the workers of the running attempt get as environment variables."""
        return self._secrets if self._attempt_of(run) is not None else {}

    async def checkpoint_saved(self, run: str, sequence: int, path: str) -> None:
        self._checkpoint_saved(run, sequence, path)

    async def get_all_reported_checkpoints(self, *args: Any) -> Any:
        """Called by Ray Train's `get_all_reported_checkpoints()` in a worker whose controller runs here."""
        return await self._runner.reported_checkpoints(*args) if isinstance(self._runner, WarmRunner) else []

    def _checkpoint_saved(self, run: str, sequence: int, path: str) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            self._remover.keep(attempt.checkpoint_saved(sequence, path))

    def _leave_drained_nodes(self) -> None:
        seconds_left = self._nodes.seconds_left()
        if seconds_left is None or self._is_draining:
            return
        logger.info("slot %s closes: a node it uses is drained", self._name)
        self._is_draining = True
        if (attempt := self._attempt) is not None:
            attempt.drain(seconds_left)
        self._inbox.put(None)

    # The slot's own thread.

    @property
    def _takes_no_more(self) -> bool:
        return self._is_closing or self._is_draining or self._is_broken

    def _work(self) -> None:
        """Serve, then end the process, also after an error: the slot would be of no more use."""
        try:
            if self._spare:
                self._libraries.import_torch()
            self._serve()
            if self._is_closing:
                return  # the agent cleans up, and ends the process
            logger.info("slot %s closes itself: %s", self._name, self._why_closed())
            self._is_closing = True
        except Exception:
            logger.exception("slot %s fails and closes", self._name)
        self._end()

    def _why_closed(self) -> str:
        if self._is_broken:
            return "Ray does not let it start anything"
        return "drained" if self._is_draining else "no work, no agent"

    def _end(self) -> None:
        """Not by `ray.kill`, which has no effect after a restart of Ray's head."""
        arguments = (LAST_REMOVAL_SECONDS,)
        cleanup = threading.Thread(target=self._clean_up, args=arguments, name="paceline-clean-up", daemon=True)
        cleanup.start()
        cleanup.join(END_SECONDS)
        os._exit(0)

    def _serve(self) -> None:
        """Run one assignment after the other until the slot is to close, or has no agent."""
        while self._idle_since is None or not self._orphan_check.is_orphaned():
            try:
                assignment = self._inbox.get(timeout=self._orphan_check.interval)
            except queue.Empty:
                continue
            if assignment is None:
                return
            while assignment is not None:
                assignment = self._run_one(assignment)
            if self._is_broken:
                return

    def _run_one(self, assignment: Assignment) -> Assignment | None:
        self._bind_to_log(assignment)
        try:
            with tracing.span("attempt", **self._log_fields, **assignment.log_fields):
                return self._run_attempt(assignment)
        finally:
            self._bind_to_log(None)

    def _run_attempt(self, assignment: Assignment) -> Assignment | None:
        """Run an attempt to its end; returns the next one. An exception is the slot's failure, not the attempt's."""
        assert self._loop is not None  # noqa: S101 - `run` sets it before it gives anything to this thread
        runner = self._runner = self._runner or self._make_runner(assignment.trainer)
        attempt = Attempt(
            assignment,
            self._addresses,
            self._loop,
            runner,
            self._remove_checkpoint,
            validation_starter(assignment, self._package, self._handle),
            Masker(self._secrets.values()),
        )
        self._attempt, self._received = attempt, None
        if self._is_closing or self._is_draining:
            attempt.refuse_to_start(is_drained=self._is_draining)
        try:
            attempt.start()
            return self._fit(attempt, runner)
        except Exception as error:
            attempt.abandon(error)
            raise
        finally:
            self._attempt = None
            self._libraries.freeze()

    def _bind_to_log(self, assignment: Assignment | None) -> None:
        """All lines of this process are about its attempt, except for what is left of the one before.

        The threads of an attempt, which may outlive it, take over what is bound to this thread.
        """
        about = {} if assignment is None else assignment.log_fields
        log_context.process = {"process": "slot", **self._log_fields, **about}
        log_context.begin(**about, **({} if assignment is None else {CREDENTIAL: assignment.lease_token}))

    def _fit(self, attempt: Attempt, runner: Runner) -> Assignment | None:
        """Run it and report the outcome: in case of success, while Ray still shuts the run down."""
        try:
            self._download_package(attempt)
        except (ServiceUnreachable, CallRefused) as refusal:
            return self._finish_without_package(attempt, refusal)
        finished: list[Future[Assignment | None]] = []
        # A worker that hangs while Ray shuts the run down would hold up the next attempt, whose lease may run already.
        watchdog = threading.Timer(min(SHUTDOWN_SECONDS, attempt.assignment.lease_seconds / 2), runner.end_workers)

        def on_success() -> None:
            finished.append(self._finisher.submit(self._finish, attempt, None))
            watchdog.start()

        train = train_function(self._host.job(attempt), self._code)
        plan = self._host.plan(attempt, self._key or "", frozenset(self._nodes.lost), on_success)
        limit = start_limit(plan.runtime_env, self.answer_seconds)
        with start_limited(attempt, limit, partial(self._give_up, attempt)):
            error = runner.fit(train, plan) if attempt.state.is_running else None
        watchdog.cancel()
        reason = self._worker_reuse.why_replace(attempt, error if finished else None)
        if reason is not None:
            logger.info("new worker processes after %s: %s", attempt.run, reason)
            runner.end_workers()
        if not finished:
            return self._finish(attempt, error)
        following = finished[0].result()
        self._is_broken |= error is not None and is_from_restarted_head(error)
        return following

    def _give_up(self, attempt: Attempt, error: WorkersNotStarted) -> None:
        """Called from a timer's thread, while this slot's own waits for Ray."""
        with log_context.resumed(attempt.log_fields):
            logger.error("slot %s closes itself: %s", self._name, error)
            self._is_closing = True
            attempt.abandon(error)
            self._end()

    def _download_package(self, attempt: Attempt) -> None:
        """Raises ServiceUnreachable and CallRefused."""
        wanted = attempt.assignment.trainer.package
        self._package.download(attempt.delivery.client, wanted, lambda: not attempt.state.is_running)

    def _finish(self, attempt: Attempt, error: BaseException | None) -> Assignment | None:
        """Deliver the rest of an attempt and its outcome; returns the next assignment, if there is one."""
        with log_context.resumed(attempt.log_fields):  # in case of success, this is another thread
            return self._finish_in_its_context(attempt, error)

    def _finish_in_its_context(self, attempt: Attempt, error: BaseException | None) -> Assignment | None:
        outcome = attempt.conclude(error, partial(remains_of, attempt))
        self._nodes.lost |= attempt.ranks.lost_nodes
        is_lost_start = outcome is not None and outcome.is_lost_start  # the next attempt would be lost here, too
        self._is_broken = error is not None and (is_from_restarted_head(error) or is_lost_start)
        if attempt.why_workers_not_reusable() is not None and attempt.knows_its_checkpoints():
            # A worker may have died while it saved.
            self._remover.remove_all_except(attempt.checkpoints.known_names(), attempt.checkpoints.folder())
        if attempt.ranks.silent:
            self._remover.run_soon(partial(remove_working_directories, attempt))
        if outcome is None or outcome.is_lost:
            self._end_worker_group()
        return self._send_outcome(attempt, outcome)

    def _end_worker_group(self) -> None:
        """After a loss. A worker whose kill was lost with the network ends with its placement group alone.

        It would hold its resources, and the next attempt would wait for them without end.
        """
        if self._runner is None or self._is_broken:  # a broken slot cleans up as it ends
            return
        try:
            self._runner.close()
        except RayError as error:
            logger.warning("slot %s cannot free its workers, and closes: %s", self._name, error)
            self._is_broken = True

    def _finish_without_package(self, attempt: Attempt, error: Exception) -> Assignment | None:
        outcome = attempt.conclude(None, lambda _rank: ("", None, None))
        if attempt.state.is_running:
            kind = LOST if isinstance(error, ServiceUnreachable | ServiceFailed) else CANNOT_START
            outcome = attempt.failed(Failure(kind, f"the package could not be downloaded: {error}"))
        return self._send_outcome(attempt, outcome)

    def _send_outcome(self, attempt: Attempt, outcome: Outcome | None) -> Assignment | None:
        self._attempt = None  # messages of this attempt come too late from now on
        following = None
        if outcome is not None:
            self._lost_count += outcome.is_lost
            # After a loss the agent looks at the storage first: the next trial might be lost, too.
            following = attempt.finish(outcome, wants_next=not (self._takes_no_more or outcome.is_lost))
        if following is None:  # a new assignment waits until Ray has shut the run down
            self._idle_since = time.monotonic()
        return following

    def _make_runner(self, trainer: TrainerSpec) -> Runner:
        if trainer.workers.is_elastic or (trainer.reuse_workers and BACKENDS[trainer.kind].is_warm):
            return WarmRunner(self._checkpoint_saved)
        return FreshRunner(self._handle)

    def _remove_checkpoint(self, uri: str) -> None:
        if self._runner is not None:
            self._runner.forget_checkpoint(uri)
        self._remover.remove(uri)

    def _clean_up(self, removal_seconds: float = REMOVAL_SECONDS) -> None:
        if self._runner is not None:
            self._runner.close()
        self._remover.close(removal_seconds)
        tracing.flush(REMOVAL_SECONDS)
        self._package.remove_from(self._nodes.workers)
