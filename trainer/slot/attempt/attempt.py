"""One attempt in the slot: it connects the workers, the service, and the attempt's state."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from trainer.client.addresses import ServiceAddresses
from trainer.client.attempt_messages import FinishBody, Progress
from trainer.client.listener import ReportAnswered
from trainer.client.outbox import SavedCheckpoint
from trainer.decisions import KILL, STOP
from trainer.process_log.context import log_context
from trainer.ray_train.runners import Runner
from trainer.resources import describe_workers
from trainer.slot.assignment import Assignment
from trainer.slot.attempt.all_gather import AllGather
from trainer.slot.attempt.attempt_clock import AttemptClock
from trainer.slot.attempt.attempt_logs import AttemptLogs
from trainer.slot.attempt.attempt_state import (
    Abandoned,
    AttemptState,
    Draining,
    Killed,
    LeaseLost,
    Preempted,
    Refused,
    Resizing,
    Running,
    State,
    Stopping,
)
from trainer.slot.attempt.delivery import GIVE_BACK_SECONDS, Delivery
from trainer.slot.attempt.failed_group import FailedGroup
from trainer.slot.attempt.failure_classification import classify, undelivered
from trainer.slot.attempt.loop_signal import LoopSignal
from trainer.slot.attempt.outcome import AttemptOutcome, End, outcome_of
from trainer.slot.attempt.ranks import Ranks, Remains
from trainer.slot.attempt.report_barrier import ReportBarrier
from trainer.slot.attempt.stuck_ranks import StuckSearch
from trainer.slot.attempt.system_samples import SystemSamples, gpu_metrics
from trainer.slot.attempt.time_limits import TimeLimits
from trainer.slot.checkpoints.checkpoint_ledger import CheckpointLedger
from trainer.slot.checkpoints.checkpoint_sizes import CheckpointSizes
from trainer.slot.checkpoints.validation_queue import Start, Validations
from trainer.worker.failures import LOST, Failure
from trainer.worker.logs.masker import Masker
from trainer.worker.messages import RankReport, WorkerEnded, WorkerStarted
from trainer.worker.user_process import UserProcess

logger = logging.getLogger("paceline")

NO_SECRETS = Masker(())


class Attempt:
    """`remove` is that of `CheckpointLedger`. `masker` knows the workers' secrets.

    `start_validation(uri, fn_kwargs)` starts the validation of a checkpoint.

    Orders to end come from several threads and go through `state`, which serializes them. What workers report comes in
    the slot's event loop, to which `barrier`, with the reports and their answers, and `all_gather` belong. The slot's
    own thread concludes the attempt.
    """

    def __init__(
        self,
        assignment: Assignment,
        addresses: ServiceAddresses,
        loop: asyncio.AbstractEventLoop,
        runner: Runner,
        remove: Callable[[str], None],
        start_validation: Start,
        masker: Masker = NO_SECRETS,
    ) -> None:
        self.assignment = assignment
        self.run_name = assignment.run_name
        self.state = AttemptState(runner.end_workers)
        self._workers = assignment.trainer.workers
        self.ranks = Ranks(self._workers.min_workers)
        self.checkpoints = CheckpointLedger(assignment, remove)
        self.delivery = Delivery(assignment, addresses, self, self._progress)
        self.system_samples = SystemSamples()
        self._sizes = CheckpointSizes()
        self._changes = LoopSignal(loop)
        self.logs = AttemptLogs(self.ranks, self.delivery.logs, masker, self._changes)
        # A failed one is noted in its log, because the trial may well complete without it.
        note = partial(self.logs.add_note, self._workers.max_workers)
        self.validations = Validations(assignment.trainer.validation, start_validation, self._validation_ended, note)
        self.barrier = ReportBarrier(self._deliver, runner.wake, self.validations.is_asked)
        self.all_gather = AllGather()
        self._deciding_sequence: int | None = None
        self.stuck_search = StuckSearch(self.ranks, self.barrier.made, self.state, self.end_now)
        self._time_limits = TimeLimits(assignment, loop, runner, self._leave_at_report, partial(self.end_now, Killed()))
        self._loop = loop
        self._failed_group = FailedGroup(self.ranks, runner, self.state.end_workers)
        self._runner = runner
        self._clock = AttemptClock()
        self.has_reported = False
        self._is_ending = False
        self._masker = masker
        self.log_fields = log_context.current()

    def refuse_to_start(self, *, is_drained: bool) -> None:
        """Give it back, because the slot is about to close."""
        if is_drained:
            self.state.drain()
        self.state.move(Preempted())

    def start(self) -> None:
        self.delivery.start()
        self._time_limits.expect_report()

    # What Ray Train's controller does with an elastic group. Called from the slot's own thread.

    def group_starts(self, world_size: int) -> None:
        """Its workers are about to start, so many of them."""
        self.ranks.world_size = world_size
        if self._workers.is_elastic:
            self.delivery.reports.world_size = world_size

    def resize(self, workers: int) -> None:
        """There is room for another number of workers: leave at the next checkpoint, whenever that is saved."""
        if self.state.move(Resizing(workers)):
            logger.info("%s will restart with %d workers after its next checkpoint", self.run_name, workers)
            self._loop.call_soon_threadsafe(self.barrier.leave_when_saved)

    # What workers and a controller of their own report. Called in the slot's event loop.

    def controller_started(self, actor: Any) -> None:
        self._runner.controller_started(actor)
        if self.state.is_ending_now:
            self._runner.end_workers()

    def worker_started(self, rank: int, started: WorkerStarted) -> None:
        self.ranks.add_started(rank, started)
        self._runner.worker_started(started.actor)
        if self.state.is_ending_now:
            self._runner.end_workers()

    def function_began(self) -> None:
        """A rank is about to call the training function. The time limits count from the first one on."""
        if self._clock.begin():
            self._time_limits.function_began()

    async def report(self, report: RankReport) -> str:
        """One rank's report, which may be repeated; returns the answer that all ranks get."""
        if not self.barrier.has(report):
            self._note(report)
        return await self.barrier.report(report)

    def _note(self, report: RankReport) -> None:
        if report.rank == 0 and report.validation is not None:
            self.validations.ask(report.sequence, report.validation)
        self.ranks.add_times(report.rank, report.times)
        self._sizes.add(report.sequence, report.rank, report.files)

    def _progress(self) -> Progress:
        """Called from the heartbeat's thread."""
        return Progress(
            phases=self._clock.phases(self.ranks),
            running_seconds=self._clock.running_seconds,
            world_size=self.delivery.reports.world_size,
            system_metrics=self.system_samples.due(),
            is_ending=self._is_ending or None,
        )

    def system_sampled(
        self, rank: int, node: int | None, load: Mapping[str, float], gpus: Sequence[Mapping[str, Any]]
    ) -> None:
        """The load of the rank's node, and all of its GPUs. Whose these are is known when all ranks have started."""
        if self.ranks.have_all_started:
            self.system_samples.add(node, {**load, **gpu_metrics(gpus, self.ranks.gpus_beside(rank))})

    async def validated(self, seconds: float | None) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """What validations have found, as `Validations.found`, once none is pending, or after so many seconds."""
        await self._changes.wait_until(
            lambda: self.state.is_ending_now or not self.validations.is_any_pending(), seconds
        )
        return self.validations.found()

    def validation_began(self, start: str, process: UserProcess) -> int:
        """A process is about to validate. Its output is that of one more rank, from the returned offset on.

        A repetition of the call, which has the same `start`, may come when the process has sent output.
        """
        rank = self._workers.max_workers
        if not self.validations.began(start, process):
            return self.ranks.log_offsets.get(rank, 0)
        return self.logs.end_of(rank)

    def _validation_ended(self, sequence: int, metrics: Mapping[str, Any]) -> None:
        self.delivery.reports.release(sequence, metrics)
        self._changes.notify()

    async def worker_failed(self, rank: int, failure: Failure) -> None:
        """A checkpoint of the rank could not be saved in the background. Its function may still train."""
        self.ranks.add_background_failure(rank, failure)
        await self._failed_group.end()

    async def worker_ended(self, rank: int, ended: WorkerEnded) -> None:
        self.ranks.add_ended(rank, ended)
        if self.ranks.have_all_ended:
            self._runner.wake(ending=True)
        elif ended.failure is not None:
            await self._failed_group.end()
        else:
            self.stuck_search.begin()

    def checkpoint_saved(self, sequence: int, path: str) -> None:
        """All ranks have saved the checkpoint of this report. From any thread."""
        saved = self._saved(sequence, path)
        self.validations.saved(sequence, path, saved.uri)
        self.delivery.reports.add_checkpoint(sequence, saved)
        self._loop.call_soon_threadsafe(self.barrier.saved, sequence)

    def _deliver(self, sequence: int, metrics: dict[str, Any], checkpoint: str | None) -> None:
        self.has_reported = True
        self._time_limits.expect_report()
        saved = None if checkpoint is None else self._saved(sequence, checkpoint)
        is_held = self.validations.is_to_hold(sequence)
        self.delivery.reports.put(sequence, metrics, saved, is_held=is_held)
        if is_held:
            self.validations.hold(sequence)

    def _saved(self, sequence: int, path: str) -> SavedCheckpoint:
        size = self._sizes.bytes_of(sequence, self.ranks.world_size)
        return SavedCheckpoint(self.checkpoints.uri_of(path), size)

    # What the service answers. Called from the threads of `delivery`.

    def on_report_answered(self, answered: ReportAnswered) -> None:
        if answered.deciding_sequence is not None:
            self._deciding_sequence = answered.deciding_sequence
            self.validations.cancel_after(answered.deciding_sequence)
        self._obey(answered)
        if answered.checkpoint is not None and answered.counts:
            self.checkpoints.add_known(answered.sequence, answered.checkpoint, answered.kept)
        elif answered.checkpoint is not None:
            self.checkpoints.remove_uncounted(answered.checkpoint)

    def _obey(self, answered: ReportAnswered) -> None:
        if answered.decision == KILL:
            self.end_now(Killed())
            return
        if answered.decision == STOP:
            logger.info("%s is stopped at report %d: %s", self.run_name, answered.sequence, answered.reason)
            self._time_limits.asked_to_stop()
        self._loop.call_soon_threadsafe(self.barrier.decide, answered.sequence, answered.decision)

    def on_order(self, decision: str, reason: str | None) -> None:
        if decision == KILL:
            self.end_now(Killed())
        else:
            self.stop(reason)

    def on_progress_known(self, progress: Progress) -> None:
        self.system_samples.confirm(progress.system_metrics)

    def on_log_room(self) -> None:
        self._changes.notify()

    def on_lease_lost(self) -> None:
        self.end_now(LeaseLost())

    def on_report_lost(self, error: Exception) -> None:
        failure = undelivered(error)
        logger.error("%s is ended: %s", self.run_name, failure.message)
        self.end_now(Refused(failure))

    # Orders to end. From any thread.

    def stop(self, reason: str | None) -> None:
        """Leave at the next report; be killed after the grace period."""
        self._leave_at_report(reason)
        if isinstance(self.state.current, Stopping):
            self._time_limits.asked_to_stop()

    def _leave_at_report(self, reason: str | None) -> None:
        """Leave at the next report, whenever that is."""
        if self.state.move(Stopping(reason)):
            logger.info("%s is to stop: %s", self.run_name, reason or "no reason given")
            self._leave()

    def drain(self, nodes: Collection[str], seconds: float) -> None:
        """These nodes go away in so many seconds. The workers get the notice and leave soon, or are ended then."""
        at_deadline = self.state.drain()
        if isinstance(self.state.current, Draining):
            told = self._runner.announce_preemption(self.ranks.by_node(nodes), seconds)
            asyncio.run_coroutine_threadsafe(self.barrier.leave_soon_after(told), self._loop)
        self._time_limits.drain(seconds, partial(self.end_now, at_deadline))

    def end_now(self, to: State) -> None:
        """End the workers immediately, unless the attempt is over."""
        if self.state.move(to):
            logger.info("%s %s", self.run_name, to.summary)
            if not isinstance(to, Killed):  # another attempt validates
                self.delivery.reports.drop_held()
            self.validations.cancel()
            self._changes.notify()
            self._leave()

    def _leave(self) -> None:
        self._loop.call_soon_threadsafe(self.barrier.leave)

    # The end. Called from the slot's own thread.

    def conclude(self, error: BaseException | None, read_remains: Callable[[int], Remains]) -> AttemptOutcome | None:
        """Deliver everything; returns the outcome, or None if the lease is lost.

        `error` is what Ray Train raised. `read_remains(rank)` is called for each rank that has not reported its end, as
        in `Ranks.take_remains`.
        """
        self._clock.end_of_workers(self.ranks.world_size)
        self._take_remains(read_remains)
        self.validations.training_is_over()
        self.delivery.flush(GIVE_BACK_SECONDS if isinstance(self.state.current, Preempted) else None)
        state = self.state.conclude()
        self._close()
        if self.knows_its_checkpoints():
            self.checkpoints.close()
        if isinstance(state, LeaseLost):
            return None
        end = End(
            state=state,
            ranks=self.ranks,
            is_drained=self.state.is_drained,
            is_elastic=self._workers.is_elastic,
            trained_past_decision=self._deciding_sequence in self.barrier.undecided,
            failed_validation=self.validations.why_none_succeeded(),
            error=error,
            classify=partial(
                classify,
                workers=describe_workers(self.assignment.trainer.scaling),
                storage=self.assignment.storage_path,
                has_oom_kill=self.ranks.has_oom_kill,
            ),
        )
        return outcome_of(end)

    def _take_remains(self, read: Callable[[int], Remains]) -> None:
        """Reading on a silent node may take longer than `report_timeout_seconds`: heartbeats say that it is ending."""
        self._is_ending = bool(self.ranks.silent) and not self.state.is_ending_now
        try:
            self.ranks.take_remains(read, self.logs.add_rest)
        finally:
            self._is_ending = False

    def abandon(self, failure: Failure) -> None:
        """End it as lost, because the slot cannot go on. Reports that are not delivered yet are dropped."""
        is_to_be_told = self.state.abandon(failure)
        self._close()
        if is_to_be_told:
            self.finish(self.failed(failure), wants_next=False)

    def failed(self, failure: Failure) -> AttemptOutcome:
        return AttemptOutcome.failed(failure, began=bool(self.ranks.started))

    def finish(self, outcome: AttemptOutcome, *, wants_next: bool) -> Assignment | None:
        """Send the outcome; returns the next assignment, if the service gave one."""
        is_given_back = isinstance(self.state.current, Preempted | Abandoned)
        masked = self._masker.mask_json(outcome.to_json())
        body = FinishBody(
            outcome=masked["outcome"],
            error=masked.get("error"),
            phases=self._clock.phases(self.ranks),
            system_metrics=self.system_samples.all(),
            next=wants_next,
        )
        following = self.delivery.finish(body, GIVE_BACK_SECONDS if is_given_back else None)
        return Assignment.from_json(following) if following is not None else None

    @property
    def began_training(self) -> bool:
        """Whether a rank has called the training function."""
        return self._clock.has_begun

    def why_workers_not_reusable(self) -> str | None:
        """Why its worker processes cannot serve another attempt, if they cannot."""
        if not isinstance(self.state.current, Running | Stopping | Resizing):
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
        self.validations.cancel()
        self._time_limits.cancel_all()
        self._changes.notify()
        self._loop.call_soon_threadsafe(self.all_gather.close)
