"""How a slot executes its attempts, one after the other, on the one worker group that it keeps between them."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from trainer.client.errors import CallRefused, ServiceFailed, ServiceUnreachable
from trainer.process_log.context import CREDENTIAL, log_context
from trainer.ray_train.runners import Runner
from trainer.slot.assignment import Assignment, TrainerSpec
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.failure_classification import slot_failed
from trainer.slot.attempt.outcome import NODE_WITHHELD, AttemptOutcome
from trainer.slot.attempt_planner import AttemptPlanner
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover
from trainer.slot.checkpoints.validation_task import validation_starter
from trainer.slot.loaded_libraries import LoadedLibraries
from trainer.slot.nodes.dead_workers import remains_of, remove_working_directories
from trainer.slot.nodes.slot_nodes import SlotNodes
from trainer.slot.start_limit import start_limit, start_limited
from trainer.slot.worker_reuse import WorkerReuse
from trainer.traces import tracing
from trainer.worker.failures import CANNOT_START, LOST, PREEMPTED, Failure, is_from_restarted_head
from trainer.worker.logs.masker import Masker
from trainer.worker.node_disk import NodeDiskFailed, ObjectStoreFailed, has_room, naming_failed_disk
from trainer.worker.rank_session import run_job, train_function

logger = logging.getLogger("paceline")

SHUTDOWN_SECONDS = 10.0
"""How long Ray may take to shut down a run that has succeeded. It usually takes a twentieth of a second."""

STARTS_NOTHING = "Ray does not let it start anything"


@dataclass
class SlotAvailability:
    """Whether, and why, the slot takes no more work. Set from any thread."""

    is_closing: bool = False
    is_draining: bool = False
    why_broken: str | None = None
    """What it can no longer do; None if it can do everything."""
    has_no_room: bool = False
    """Its own node has no room for what its workers need."""

    @property
    def takes_no_more(self) -> bool:
        return self.is_draining or self.will_end

    @property
    def will_end(self) -> bool:
        """Whether it ends by itself, drained or not."""
        return self.is_closing or self.is_broken or self.has_no_room

    @property
    def is_broken(self) -> bool:
        return self.why_broken is not None


class AttemptExecutor:
    """`make_runner` is called once, for the first attempt; all further ones need the same of Ray.

    `answer_seconds`: how long new workers may take to answer, beside the waits for resources and for a runtime
    environment. When they do not start in time, the attempt is lost, and `end_slot`, which never returns, is called.
    """

    def __init__(
        self,
        planner: AttemptPlanner,
        nodes: SlotNodes,
        availability: SlotAvailability,
        remover: CheckpointRemover,
        make_runner: Callable[[TrainerSpec], Runner],
        end_slot: Callable[[], None],
        answer_seconds: float,
    ) -> None:
        self._planner = planner
        self._nodes = nodes
        self._availability = availability
        self._remover = remover
        self._make_runner = make_runner
        self._end_slot = end_slot
        self._answer_seconds = answer_seconds
        self.attempt: Attempt | None = None
        self.runner: Runner | None = None
        self.secrets: dict[str, str] = {}
        self.lost_count = 0
        self.bytes_without_room: int | None = None
        self.key: str | None = None
        self._accepted: Assignment | None = None
        self._idle_since: float | None = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._code: Any | None = None
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-finish")
        self._worker_reuse = WorkerReuse()
        self._libraries = LoadedLibraries()

    @property
    def is_idle(self) -> bool:
        return self._idle_since is not None

    @property
    def idle_seconds(self) -> float | None:
        return None if self._idle_since is None else time.monotonic() - self._idle_since

    @property
    def assignment(self) -> Assignment | None:
        """The one that is executed, or is about to be."""
        attempt = self.attempt
        return attempt.assignment if attempt is not None else self._accepted

    @property
    def is_starting(self) -> bool:
        """Whether it has an assignment whose lease it does not extend yet: the process may still import libraries."""
        return self._accepted is not None

    def accept(self, assignment: Assignment, key: str, secrets: dict[str, str]) -> None:
        """It is about to be executed. Called in the event loop that answers its workers.

        `key` names what it needs of a slot, `secrets` the values for it and for the assignments that follow it.
        """
        self.key, self.secrets = key, secrets
        log_context.mask = Masker(secrets.values()).mask
        self._idle_since, self._accepted = None, assignment
        self._loop = asyncio.get_running_loop()

    def import_libraries(self) -> None:
        """Import what attempts are likely to need, so that the first one does not wait for it."""
        self._libraries.import_torch()

    def execute(self, assignment: Assignment) -> Assignment | None:
        """Execute an attempt to its end; returns the next one. An exception is the slot's own failure."""
        with self._bound(assignment):
            runner = self.runner = self.runner or self._make_runner(assignment.trainer)
            attempt = self._make_attempt(assignment, runner)
            self.attempt, self._accepted = attempt, None
            if self._availability.is_closing or self._availability.is_draining:
                attempt.refuse_to_start(is_drained=self._availability.is_draining)
            try:
                attempt.start()
                return self._fit(attempt, runner)
            except Exception as error:
                attempt.abandon(slot_failed(error))
                raise
            finally:
                self.attempt = None
                if runner.placement_group is None:
                    self._nodes.group_ended()
                self._libraries.freeze()

    def _make_attempt(self, assignment: Assignment, runner: Runner) -> Attempt:
        assert self._loop is not None  # noqa: S101 - `accept` has set it
        return Attempt(
            assignment,
            self._planner.addresses,
            self._loop,
            runner,
            self._remove_checkpoint,
            validation_starter(assignment, self._planner.package, self._planner.slot),
            Masker(self.secrets.values()),
        )

    @contextmanager
    def _bound(self, assignment: Assignment) -> Iterator[None]:
        """What this process logs is about the assignment, which has a span of its own."""
        self._bind_to_log(assignment)
        try:
            with tracing.span("attempt", **self._planner.log_fields, **assignment.log_fields):
                yield
        finally:
            self._bind_to_log(None)

    def _bind_to_log(self, assignment: Assignment | None) -> None:
        """All lines of this process are about its attempt, except for what is left of the one before.

        The threads of an attempt, which may outlive it, take over what is bound to this thread.
        """
        about = {} if assignment is None else assignment.log_fields
        log_context.process = {"process": "slot", **self._planner.log_fields, **about}
        log_context.begin(**about, **({} if assignment is None else {CREDENTIAL: assignment.lease_token}))

    def _fit(self, attempt: Attempt, runner: Runner) -> Assignment | None:
        """Run it and report the outcome: in case of success, while Ray still shuts the run down."""
        try:
            wanted, package = attempt.assignment.trainer.package, self._planner.package
            package.download(attempt.delivery.client, wanted, lambda: not attempt.state.is_running)
            code = self._stored_code()
        except (ServiceUnreachable, CallRefused, NodeDiskFailed) as why:
            return self._finish_unprepared(attempt, why)
        finished: list[Future[Assignment | None]] = []
        # A worker that hangs while Ray shuts the run down would hold up the next attempt, whose lease may run already.
        watchdog = threading.Timer(min(SHUTDOWN_SECONDS, attempt.assignment.lease_seconds / 2), runner.end_workers)

        def on_success() -> None:
            finished.append(self._finisher.submit(self._finish, attempt, None))
            watchdog.start()

        train = train_function(self._planner.job(attempt), code)
        if self._nodes.uses_withheld:
            self._end_worker_group()
            self._nodes.group_ended()
        plan = self._planner.plan(attempt, self.key or "", self._nodes, on_success)
        limit = start_limit(plan.runtime_env, self._answer_seconds)
        self._worker_reuse.begin()
        with start_limited(attempt, limit, partial(self._give_up, attempt)):
            error = runner.fit(train, plan) if attempt.state.is_running else None
        watchdog.cancel()
        reason = self._worker_reuse.why_replace(attempt, error if finished else None)
        if reason is not None:
            logger.info("new worker processes after %s: %s", attempt.run_name, reason)
            runner.end_workers()
        if not finished:
            return self._finish(attempt, error)
        following = finished[0].result()
        if error is not None and is_from_restarted_head(error):
            self._availability.why_broken = STARTS_NOTHING
        return following

    def _stored_code(self) -> Any:
        """Return an ObjectRef to `run_job`, stored once for all attempts. Raises NodeDiskFailed."""
        if self._code is None:
            with naming_failed_disk("Paceline's code for workers cannot be stored"):
                self._code = ray.put(run_job)
        return self._code

    def _give_up(self, attempt: Attempt, failure: Failure) -> None:
        """Called from a timer's thread, while the slot's own waits for Ray."""
        with log_context.resumed(attempt.log_fields):
            logger.error("slot %s closes itself: %s", self._planner.name, failure.message)
            self._availability.is_closing = True
            attempt.abandon(failure)
            self._end_slot()

    def _finish(self, attempt: Attempt, error: BaseException | None) -> Assignment | None:
        """Deliver the rest of an attempt and its outcome; returns the next assignment, if there is one."""
        with log_context.resumed(attempt.log_fields):  # in case of success, this is another thread
            outcome = attempt.conclude(error, partial(remains_of, attempt))
            if outcome is not None:
                outcome = self._worker_reuse.accepted(outcome, attempt)
            self._nodes.lost |= attempt.ranks.lost_nodes
            self._nodes.add_failed_disks(attempt.ranks.failed_disks)
            is_lost_start = outcome is not None and outcome.is_lost_start  # the next attempt would be lost here, too
            if error is not None and (is_from_restarted_head(error) or is_lost_start):
                self._availability.why_broken = STARTS_NOTHING
            if attempt.why_workers_not_reusable() is not None and attempt.knows_its_checkpoints():
                # A worker may have died while it saved.
                self._remover.remove_all_except(attempt.checkpoints.known_names(), attempt.checkpoints.folder())
            if attempt.ranks.silent:
                self._remover.run_soon(
                    partial(remove_working_directories, attempt), f"working directories of {attempt.run_name}"
                )
            if outcome is None or outcome.is_lost or outcome.is_start_given_back or attempt.ranks.silent:
                self._end_worker_group()
            return self._send_outcome(attempt, outcome)

    def _end_worker_group(self) -> None:
        """After a loss, a kill, or a wait for resources that was in vain.

        A worker whose kill was lost with the network ends with its placement group alone. It would hold its resources,
        and the next attempt would wait for them without end.
        """
        if self._availability.is_broken:  # a broken slot cleans up as it ends
            return
        try:
            self.close()
        except RayError as error:
            logger.warning("slot %s cannot free its workers, and closes: %s", self._planner.name, error)
            self._availability.why_broken = "Ray does not let it end its workers"

    def _finish_unprepared(self, attempt: Attempt, error: Exception) -> Assignment | None:
        outcome = attempt.conclude(None, lambda _rank: ("", None, None))
        if attempt.state.is_running:
            outcome = attempt.failed(self._why_unprepared(error))
        return self._send_outcome(attempt, outcome)

    def _why_unprepared(self, error: Exception) -> Failure:
        if isinstance(error, NodeDiskFailed):
            return self._without_room(error)
        kind = LOST if isinstance(error, ServiceUnreachable | ServiceFailed) else CANNOT_START
        return Failure(kind, f"the package could not be downloaded: {error}")

    def _without_room(self, error: NodeDiskFailed) -> Failure:
        """As for a worker that finds no room. The slot closes: on its node it could store nothing the next time."""
        if has_room(of_object_store=isinstance(error, ObjectStoreFailed)):
            self._availability.why_broken = str(error)
            return Failure(LOST, str(error))
        self._nodes.add_failed_disks({self._nodes.own: str(error)})
        self._availability.has_no_room = True
        return Failure(PREEMPTED, f"{error}; {NODE_WITHHELD}")

    def _send_outcome(self, attempt: Attempt, outcome: AttemptOutcome | None) -> Assignment | None:
        self.attempt = None  # messages of this attempt come too late from now on
        following = None
        if outcome is not None:
            if outcome.is_lost:
                self.bytes_without_room = attempt.ranks.bytes_without_room  # before the count, by which it is read
                self.lost_count += 1
            # After a loss the agent looks at the storage first: the next trial might be lost, too. And for a group that
            # did not get its resources, or is to use other nodes, only a claim tells whether there is room.
            is_able = not (outcome.is_lost or outcome.is_start_given_back or self._nodes.uses_withheld)
            following = attempt.finish(outcome, wants_next=is_able and not self._availability.takes_no_more)
        if following is None:  # a new assignment waits until Ray has shut the run down
            self._idle_since = time.monotonic()
        return following

    def _remove_checkpoint(self, uri: str) -> None:
        if self.runner is not None:
            self.runner.forget_checkpoint(uri)
        self._remover.remove(uri)

    def close(self) -> None:
        """End the worker group, if there is one. From any thread."""
        if self.runner is not None:
            self.runner.close()
