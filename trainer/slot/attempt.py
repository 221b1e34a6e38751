"""One attempt in the slot: it connects the workers, the service, and the attempt's state."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from trainer.ray_train.runners import Runner
from trainer.resources import describe_workers
from trainer.slot.assignment import Assignment
from trainer.slot.attempt_state import (
    Abandoned,
    AttemptState,
    Draining,
    Killed,
    LeaseLost,
    Preempted,
    Refused,
    Running,
    State,
    Stopping,
)
from trainer.slot.checkpoint_ledger import CheckpointLedger
from trainer.slot.delivery import GIVE_BACK_SECONDS, Delivery
from trainer.slot.outcome import End, Outcome, outcome_of
from trainer.slot.ranks import Ranks, Unsent
from trainer.slot.ray_errors import classify, slot_failed, undelivered
from trainer.slot.report_barrier import STOP, ReportBarrier
from trainer.slot.timers import Timers
from trainer.worker.failures import LOST, Failure
from trainer.worker.messages import WorkerEnded, WorkerStarted

logger = logging.getLogger("paceline")

KILL = "kill"

OTHER_RANKS_SECONDS = 0.5
"""How long the other ranks have to report what happened to them after one rank has failed."""


class Attempt:
    """`remove(uri)` gets each directory of checkpoints that is no longer needed.

    Orders to end come from several threads and go through `state`, which serializes them. What workers report comes in
    the slot's event loop, to which `barrier` belongs, with the reports and their answers. The slot's own thread
    concludes the attempt.
    """

    def __init__(
        self,
        assignment: Assignment,
        service_url: str,
        loop: asyncio.AbstractEventLoop,
        runner: Runner,
        remove: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.run = assignment.run_name
        self.state = AttemptState(runner.end_workers)
        self.ranks = Ranks(assignment.trainer.num_workers)
        self.checkpoints = CheckpointLedger(assignment, remove)
        self.delivery = Delivery(assignment, service_url, self)
        self.barrier = ReportBarrier(self._deliver, lambda _sequence: runner.wake())
        self._timers = Timers(loop)
        self._loop = loop
        self._runner = runner

    def refuse_to_start(self, *, is_drained: bool) -> None:
        """Give it back, because the slot is about to close."""
        if is_drained:
            self.state.drain()
        self.state.move(Preempted())

    def start(self) -> None:
        self.delivery.start()
        if limit := self.assignment.max_seconds:
            self._timers.start("time limit", limit, self.stop, f"max_trial_seconds: {limit:g} seconds are over")

    # What workers report. Called in the slot's event loop.

    def worker_started(self, rank: int, started: WorkerStarted) -> None:
        self.ranks.add_started(rank, started)
        self._runner.worker_started(started.actor)
        if self.state.is_ending_now:
            self._runner.end_workers()

    def log(self, rank: int, offset: int, text: str, positions: dict[str, int]) -> None:
        self.ranks.add_log(rank, offset, text, positions)
        self.delivery.logs.put(rank, offset, text)

    async def worker_ended(self, rank: int, ended: WorkerEnded) -> None:
        self.ranks.add_ended(rank, ended)
        if self.ranks.have_all_ended:
            self._runner.wake(ending=True)
        elif ended.failure is not None:
            await self.ranks.find_dead()
            # The others may wait for this rank, and never end.
            self._loop.call_later(OTHER_RANKS_SECONDS, self.state.end_workers)

    def checkpoint_saved(self, sequence: int, path: str) -> None:
        """All ranks have saved the checkpoint of this report. From any thread."""
        self.delivery.reports.add_checkpoint(sequence, self.checkpoints.uri_of(path))

    def _deliver(self, sequence: int, metrics: dict[str, Any], checkpoint: str | None) -> None:
        uri = None if checkpoint is None else self.checkpoints.uri_of(checkpoint)
        self.delivery.reports.put(sequence, metrics, uri)

    # What the service answers. Called from the threads of `delivery`.

    def on_decision(self, sequence: int, decision: str, reason: str | None) -> None:
        if decision == KILL:
            self.end_now(Killed())
            return
        if decision == STOP:
            logger.info("%s is stopped at report %d: %s", self.run, sequence, reason)
            self._start_grace_period()
        self._loop.call_soon_threadsafe(self.barrier.decide, sequence, decision)

    def on_order(self, decision: str, reason: str | None) -> None:
        if decision == KILL:
            self.end_now(Killed())
        else:
            self.stop(reason)

    def on_lease_lost(self) -> None:
        self.end_now(LeaseLost())

    def on_report_lost(self, error: Exception) -> None:
        failure = undelivered(error)
        logger.error("%s is ended: %s", self.run, failure.message)
        self.end_now(Refused(failure))

    def on_checkpoint_known(self, uri: str) -> None:
        self.checkpoints.add_known(uri)

    # Orders to end. From any thread.

    def stop(self, reason: str | None) -> None:
        """Leave at the next report; be killed after the grace period."""
        if self.state.move(Stopping(reason)):
            logger.info("%s is to stop: %s", self.run, reason or "no reason given")
            self._start_grace_period()
            self._leave()

    def drain(self, seconds: float) -> None:
        """One of its nodes is drained: leave at the next report; be ended after so many seconds."""
        at_deadline = self.state.drain()
        if isinstance(self.state.current, Draining):
            self._leave()
        self._timers.start("drain", seconds, self.end_now, at_deadline)

    def end_now(self, to: State) -> None:
        """End the workers immediately, unless the attempt is over."""
        if self.state.move(to):
            logger.info("%s %s", self.run, to.summary)
            self._leave()

    def _leave(self) -> None:
        self._loop.call_soon_threadsafe(self.barrier.leave)

    def _start_grace_period(self) -> None:
        self._timers.start("grace period", self.assignment.stop_grace_seconds, self.end_now, Killed())

    # The end. Called from the slot's own thread.

    def conclude(self, error: BaseException | None, read_unsent: Callable[[int], Unsent]) -> Outcome | None:
        """Deliver everything; returns the outcome, or None if the lease is lost.

        `error` is what Ray Train raised. `read_unsent(rank)` is called for each rank that has not reported its end.
        """
        self.ranks.send_unsent(read_unsent, self.delivery.logs.put)
        self.delivery.flush(GIVE_BACK_SECONDS if isinstance(self.state.current, Preempted) else None)
        state = self.state.conclude()
        self._close()
        if isinstance(state, LeaseLost):
            return None
        return outcome_of(End(state, self.ranks, self.state.is_drained, error, self._classify))

    def abandon(self, error: Exception) -> None:
        """End it as lost, because the slot has failed. Reports that are not delivered yet are dropped."""
        failure = slot_failed(error)
        if self.state.abandon(failure):
            self._close()
            self.finish(self.failed(failure), wants_next=False)
        else:
            self._close()

    def failed(self, failure: Failure) -> Outcome:
        return Outcome.failed(failure, began=bool(self.ranks.started))

    def finish(self, outcome: Outcome, *, wants_next: bool) -> Assignment | None:
        """Send the outcome; returns the next assignment, if the service gave one."""
        is_given_back = isinstance(self.state.current, Preempted | Abandoned)
        body = {**outcome.to_json(), "next": wants_next}
        following = self.delivery.finish(body, GIVE_BACK_SECONDS if is_given_back else None)
        return Assignment.from_json(following) if following is not None else None

    def why_workers_not_reusable(self) -> str | None:
        """Why its worker processes cannot serve another attempt, if they cannot."""
        if not isinstance(self.state.current, Running | Stopping):
            return f"the attempt {self.state.current.summary}"
        return self.ranks.why_not_reusable()

    def knows_its_checkpoints(self) -> bool:
        """Whether `checkpoints` has all that the service knows or may come to know of a concluded attempt."""
        match self.state.current:
            case Preempted() | Abandoned() | LeaseLost():
                return False
            case Refused(failure=failure):
                return failure.kind != LOST
            case _:
                return True

    def _close(self) -> None:
        self.delivery.close()
        self._timers.cancel_all()

    def _classify(self, error: BaseException) -> Failure:
        return classify(
            error,
            workers=describe_workers(self.assignment.trainer.scaling),
            storage=self.assignment.storage_path,
            has_oom_kill=self.ranks.has_oom_kill,
        )
