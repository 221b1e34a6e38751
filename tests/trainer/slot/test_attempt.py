"""One attempt against a service, with the test in the place of the workers: every way in which it may be ended."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError

from tests.trainer.conftest import set_constant, until
from tests.trainer.fake_service import FakeService
from trainer.client.addresses import ServiceAddresses
from trainer.slot.assignment import Assignment
from trainer.slot.attempt import Attempt
from trainer.slot.attempt_state import Abandoned, Killed, LeaseLost, Preempted, Refused, State, Stopping
from trainer.slot.outcome import Outcome
from trainer.slot.report_barrier import ReportBarrier
from trainer.slot.system_samples import SystemSamples
from trainer.wire import Answer, Decision, PhaseSeconds
from trainer.worker.failures import LOST, PREEMPTED, USER_ERROR, Failure
from trainer.worker.messages import WorkerEnded, WorkerStarted

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

STARTED = WorkerStarted(
    actor=None, node="n", pid=1, placement_group=None, log_positions={}, oom_counter=None, oom_kills=None
)
SECONDS = 240


class CountingRunner:
    """It has no workers, and counts how often they are to end."""

    placement_group = None

    def __init__(self) -> None:
        self.ended_count = 0
        self.is_ending = False
        self.group: dict[int, Any] = {}

    def worker_started(self, actor: Any) -> None:
        pass

    def actors(self) -> dict[int, Any]:
        return self.group

    def wake(self, *, ending: bool = False) -> None:
        self.is_ending = self.is_ending or ending

    def end_workers(self) -> None:
        self.ended_count += 1


class PlayedValidation:
    """A validation that ends when the test says so."""

    def __init__(self, uri: str, fn_kwargs: dict[str, Any]) -> None:
        self.uri, self.fn_kwargs = uri, fn_kwargs
        self.is_cancelled = False
        self._ended = threading.Event()
        self._result: tuple[dict[str, Any], Failure | None] = {}, None

    def end(self, failure: Failure | None = None, **metrics: Any) -> None:
        self._result = metrics, failure
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(min(seconds, 0.01))

    def result(self) -> tuple[dict[str, Any], Failure | None]:
        return self._result

    def cancel(self) -> None:
        self.is_cancelled = True

    def why_no_room(self) -> str | None:
        return "no node has room"


class Played:
    """An attempt of one rank, which the test plays."""

    def __init__(
        self,
        service: FakeService,
        scaling: dict[str, Any] | None = None,
        validation: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        self.service = service
        trainer = {"entrypoint": "train:train_fn", "scaling": scaling or {}, "validation": validation}
        self.trial = service.add_trial(trainer, **fields)
        self.runner = CountingRunner()
        runner: Any = self.runner
        assignment = Assignment.from_json(service.assign(self.trial))
        self.removed: list[str] = []
        self.validations: list[PlayedValidation] = []
        self.attempt = Attempt(
            assignment,
            ServiceAddresses(service.url),
            asyncio.get_running_loop(),
            runner,
            self.removed.append,
            self.start_validation,
        )
        self._orders: list[type[State]] = []
        move = self.attempt.state.move

        def remember(to: State) -> bool:
            self._orders += [type(to)] * (moved := move(to))
            return moved

        self.attempt.state.move = remember  # type: ignore[method-assign]

    def start_validation(self, uri: str, fn_kwargs: Mapping[str, Any], log_offset: int) -> PlayedValidation:  # noqa: ARG002
        self.validations.append(PlayedValidation(uri, dict(fn_kwargs)))
        return self.validations[-1]

    async def report_for_validation(self, sequence: int, **asked: Any) -> str:
        """A report whose checkpoint is saved, and is to be validated."""
        path = f"{self.attempt.run}/c{sequence}"
        self.attempt.checkpoint_saved(sequence, path)
        report = (sequence, 0, 1, {"loss": float(sequence)}, path)
        return await self.attempt.report(report, {}, None, asked)

    async def validation(self, number: int) -> PlayedValidation:
        """The validation that starts as this one, from 0."""
        await asyncio.to_thread(until, lambda: len(self.validations) > number, f"validation {number} starts", SECONDS)
        return self.validations[number]

    async def report(self, sequence: int, checkpoint: str | None = None) -> str:
        return await self.attempt.barrier.report(sequence, 0, 1, {"loss": 1.0}, checkpoint)

    async def comes_to(self, state: type[State]) -> None:
        """It may have moved on already."""
        await asyncio.to_thread(until, lambda: state in self._orders, f"it comes to {state.__name__}", SECONDS)

    async def conclude(self) -> Outcome | None:
        return await asyncio.to_thread(self.attempt.conclude, None, lambda _rank: ("", None, None))

    async def finish(self, outcome: Outcome) -> None:
        await asyncio.to_thread(lambda: self.attempt.finish(outcome, wants_next=False))


@asynccontextmanager
async def played(storage: Path, **fields: Any) -> AsyncIterator[Played]:
    with FakeService(str(storage)).serving() as service:
        one = Played(service, **fields)
        one.attempt.start()
        one.attempt.worker_started(0, STARTED)
        yield one
        await one.conclude()


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_function_that_returns_completes_its_trial(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            assert await one.report(0) == "continue"
            await one.attempt.worker_ended(0, WorkerEnded())
            assert one.runner.is_ending
            outcome = await one.conclude()
            assert outcome == Outcome("completed", began=True)
            await one.finish(outcome)
            assert one.service.finishes[one.trial].outcome == "completed"
            assert one.attempt.why_workers_not_reusable() is None
            assert one.runner.ended_count == 0

    play(run)


class DeadActor:
    """The handle of a worker whose process was killed."""

    @property
    def __ray_ready__(self) -> Any:
        return self

    async def remote(self) -> None:
        raise RayActorError


def test_a_rank_that_was_killed_before_it_told_that_it_starts_is_a_loss(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            one.runner.group = {0: STARTED.actor, 1: DeadActor()}
            failure = Failure(USER_ERROR, "Connection closed by peer", "Traceback")
            await one.attempt.worker_ended(0, WorkerEnded(failure=failure))
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == LOST
            assert outcome.failure.message == "the worker of rank 1 died; then Connection closed by peer"

    play(run)


def test_heartbeats_and_the_end_tell_the_seconds_by_phase(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, lease_seconds=0.3) as one:
            told = one.service.phases[one.trial]
            await asyncio.to_thread(until, lambda: told, "the first heartbeat", SECONDS)
            assert told[0] == PhaseSeconds()
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 0.0, "reporting": 1e-6}
            assert await one.attempt.report((0, 0, 1, {"loss": 1.0}, None), waits) == "continue"
            await asyncio.to_thread(until, lambda: told[-1] and told[-1].reporting, "a later heartbeat", SECONDS)
            assert told[-1] is not None
            assert told[-1].training > 0
            await one.attempt.worker_ended(0, WorkerEnded(times=waits | {"running": 0.01}))
            outcome = await one.conclude()
            assert outcome is not None
            await one.finish(outcome)
            end = one.service.finishes[one.trial].phases
            assert end is not None
            assert end.training == pytest.approx(0.01 - 1e-6)
            assert end.total >= told[-1].total

    play(run)


def test_the_load_of_the_nodes_arrives_with_heartbeats_and_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample has the GPUs of all ranks on its node."""
    set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 0)
    gpus = [{"index": str(n), "uuid": f"GPU-{n}", "metrics": {"utilization_percentage": 10.0 * n}} for n in range(4)]

    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 3}, lease_seconds=0.3) as one:
            told = one.service.samples[one.trial]
            one.attempt.worker_started(0, replace(STARTED, gpus=["3"]))
            one.attempt.worker_started(1, replace(STARTED, gpus=["1"]))
            one.attempt.system_sampled(0, 0, {"cpu_utilization_percentage": 1.0}, gpus)  # too early
            one.attempt.worker_started(2, replace(STARTED, node="other", gpus=["0"]))
            one.attempt.system_sampled(0, 0, {"cpu_utilization_percentage": 5.0}, gpus)
            await asyncio.to_thread(until, lambda: told, "a heartbeat with the sample", SECONDS)
            shares = {"gpu_0_utilization_percentage": 10.0, "gpu_1_utilization_percentage": 30.0}
            assert (told[0].sequence, told[0].node) == (0, 0)
            assert told[0].metrics == {"cpu_utilization_percentage": 5.0} | shares
            set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 600)
            one.attempt.system_sampled(2, 1, {}, gpus)
            for rank in range(3):
                await one.attempt.worker_ended(rank, WorkerEnded())
            outcome = await one.conclude()
            assert outcome is not None
            await one.finish(outcome)
            assert one.service.finishes[one.trial].system_metrics[-1].metrics == {"gpu_0_utilization_percentage": 0.0}

    play(run)


def test_a_service_that_does_not_know_samples_gets_heartbeats_and_the_end_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, SystemSamples.due, "SEND_SECONDS", 0)

    async def run() -> None:
        async with played(tmp_path, lease_seconds=0.3) as one:
            one.service.refuses_samples = {"heartbeat", "finish"}
            one.attempt.system_sampled(0, None, {"cpu_utilization_percentage": 5.0}, [])
            enough = one.service.heartbeats[one.trial] + 3
            await asyncio.to_thread(until, lambda: one.service.heartbeats[one.trial] >= enough, "heartbeats", SECONDS)
            one.attempt.system_sampled(0, None, {"cpu_utilization_percentage": 6.0}, [])
            await one.attempt.worker_ended(0, WorkerEnded())
            outcome = await one.conclude()
            assert outcome is not None
            await one.finish(outcome)
            assert one.service.finishes[one.trial].outcome == "completed"
            assert one.service.samples[one.trial] == []

    play(run)


def test_a_report_that_arrives_after_the_end_of_its_rank_changes_no_seconds(tmp_path: Path) -> None:
    """Ray may run a later call before an earlier one."""

    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 0.0, "reporting": 0.0}
            await one.attempt.worker_ended(0, WorkerEnded(times=waits | {"running": 1e-6}))
            assert await one.attempt.report((0, 0, 1, {"loss": 1.0}, None), waits) == "continue"
            outcome = await one.conclude()
            assert outcome is not None
            await one.finish(outcome)
            end = one.service.finishes[one.trial].phases
            assert end is not None
            assert end.training == 1e-6

    play(run)


def test_the_seconds_of_ranks_that_were_killed_are_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.function_began()
            waits = {"data": 0.0, "checkpointing": 1e-6, "reporting": 0.0}
            assert await one.attempt.report((0, 0, 1, {"loss": 1.0}, None), waits) == "continue"
            outcome = await one.conclude()
            assert outcome is not None
            await one.finish(outcome)
            end = one.service.finishes[one.trial].phases
            assert end is not None
            assert end.checkpointing == 1e-6
            assert min(end.training, end.idle) > 0

    play(run)


def test_a_stop_is_the_answer_to_the_next_report_and_a_kill_follows_after_the_grace_period(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, stop_grace_seconds=0.5) as one, played(tmp_path, stop_grace_seconds=600) as other:
            for attempt in (other, one):
                attempt.service.order(attempt.trial, Decision.STOP, "the user")
                await attempt.comes_to(Stopping)
                assert await attempt.report(0) == "stop"
            await one.comes_to(Killed)
            assert one.runner.ended_count
            assert await one.conclude() == Outcome("stopped", began=True)
            assert one.attempt.why_workers_not_reusable() == "the attempt was killed"
            assert isinstance(other.attempt.state.current, Stopping)

    play(run)


@pytest.mark.parametrize("deciding", [1, 3])
def test_a_function_that_trained_on_past_its_decision_was_stopped_and_its_later_checkpoints_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deciding: int
) -> None:
    """Also if the deciding report was its last one: without the outage it would have left there."""
    monkeypatch.setattr(ReportBarrier.__init__, "__kwdefaults__", {"wait_seconds": 0})

    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.decide = lambda *_: Answer(decision=Decision.STOP, deciding_sequence=deciding)
            one.service.away = True
            run_name = one.attempt.run
            answers = [await one.report(number, f"x/{run_name}/checkpoint_{number}") for number in range(4)]
            assert answers == ["continue"] * 4
            await one.attempt.worker_ended(0, WorkerEnded())
            one.service.away = False
            assert await one.conclude() == Outcome("stopped", began=True)
            kept = f"checkpoint_{deciding}"
            assert one.attempt.checkpoints.known_names() == [kept]
            assert {uri.rpartition("/")[2] for uri in one.removed} == {f"checkpoint_{n}" for n in range(4)} - {kept}

    play(run)


def test_its_end_waits_until_a_slow_service_has_all_of_its_output(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.takes_logs.clear()
            one.attempt.log(0, 0, "the first half, ", {})
            one.attempt.log(0, 16, 300_000 * "x", {})
            await one.attempt.worker_ended(0, WorkerEnded())
            concluding = asyncio.create_task(one.conclude())
            await asyncio.wait([concluding], timeout=0.5)
            assert not concluding.done()
            one.service.takes_logs.set()
            assert await concluding == Outcome("completed", began=True)
            assert one.service.log(one.trial) == "the first half, " + 300_000 * "x"

    play(run)


def test_its_ranks_wait_with_more_output_than_the_service_takes(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.room_for_logs()
            one.service.takes_logs.clear()
            one.attempt.log(0, 0, 3_000_000 * "x", {})
            waiting = asyncio.create_task(one.attempt.room_for_logs())
            await asyncio.wait([waiting], timeout=0.2)
            assert not waiting.done()
            one.service.takes_logs.set()
            await waiting

    play(run)


def test_its_time_limit_counts_from_the_functions_first_line_and_waits_for_a_report(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, max_seconds=0.1, stop_grace_seconds=0.1) as one:
            await asyncio.sleep(0.2)
            assert one.attempt.state.is_running, "its workers start"
            one.attempt.function_began()
            await one.comes_to(Stopping)
            assert one.attempt.state.current == Stopping("it has run for 0.1 seconds")
            await asyncio.sleep(0.3)
            assert isinstance(one.attempt.state.current, Stopping), "no grace period has begun"
            assert await one.report(0) == "stop"
            await asyncio.to_thread(one.attempt.delivery.reports.flush)
            assert len(one.service.reports[one.trial]) == 1

    play(run)


def test_a_stop_after_its_time_limit_begins_the_grace_period(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, max_seconds=0.1, stop_grace_seconds=0.1) as one:
            one.attempt.function_began()
            await one.comes_to(Stopping)
            one.service.order(one.trial, Decision.STOP, "the user")
            await one.comes_to(Killed)

    play(run)


def test_it_is_killed_so_long_after_the_functions_first_line_without_a_report(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, max_seconds=0.1, kill_after_seconds=0.2) as one:
            one.attempt.function_began()
            await one.comes_to(Killed)
            assert await one.conclude() == Outcome("stopped", began=True)

    play(run)


def test_a_lost_lease_ends_the_workers_and_there_is_no_outcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.lose(one.trial)
            await one.comes_to(LeaseLost)
            one.attempt.stop("too late")
            one.attempt.abandon(RuntimeError("too late"))
            assert await one.conclude() is None
            assert one.attempt.state.current == LeaseLost()
            assert one.runner.ended_count == 1
            assert one.trial not in one.service.finishes

    play(run)


def test_a_report_that_the_service_refuses_fails_it_also_if_it_is_killed_then(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.refused[one.trial] = "no such step"
            report = asyncio.create_task(one.report(0))
            await one.comes_to(Refused)
            assert await report == "stop"
            one.attempt.end_now(Killed())
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.message == "the service refused a report: no such step"

    play(run)


def test_a_drained_node_gives_it_back_when_the_time_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.drain(0.2)
            assert await one.report(0) == "stop"
            await one.comes_to(Preempted)
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == "preempted"
            assert not one.attempt.knows_its_checkpoints()

    play(run)


def test_a_worker_that_starts_after_the_kill_is_ended_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.end_now(Killed())
            one.attempt.worker_started(0, STARTED)
            assert one.runner.ended_count == 2

    play(run)


def test_orders_after_the_conclusion_leave_the_workers_to_the_next_attempt(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.conclude()
            for end in (Killed(), LeaseLost(), Preempted()):
                one.attempt.end_now(end)
            one.attempt.stop("too late")
            one.attempt.drain(0)
            await asyncio.sleep(0.1)
            assert one.runner.ended_count == 0

    play(run)


def test_a_slot_that_fails_after_the_conclusion_reports_the_attempt_as_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.conclude()
            await asyncio.to_thread(one.attempt.abandon, MemoryError("no room left"))
            assert isinstance(one.attempt.state.current, Abandoned)
            error = one.service.finishes[one.trial].error
            assert error is not None
            assert (error.kind, error.message) == ("lost", "the slot failed: MemoryError: no room left")

    play(run)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_slot_that_closes_gives_back_what_it_has_not_begun(tmp_path: Path, is_drained: bool) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.refuse_to_start(is_drained=is_drained)
            assert one.attempt.state.current == Preempted()
            assert one.attempt.state.is_drained == is_drained

    play(run)


def test_an_attempt_that_is_given_back_does_not_wait_for_a_service_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, Attempt.finish, "GIVE_BACK_SECONDS", 0.2)

    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.away = True
            one.attempt.end_now(Preempted())
            outcome = await one.conclude()
            assert outcome is not None
            started_at = time.monotonic()
            await one.finish(outcome)
            assert time.monotonic() - started_at < SECONDS
            assert one.trial not in one.service.finishes

    play(run)


def test_an_elastic_group_leaves_at_a_checkpoint_when_there_is_room_and_tells_its_size(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": [1, 4]}) as one:
            one.attempt.group_starts(1)
            assert await one.report(0) == "continue"
            one.attempt.resize(3)
            one.attempt.resize(4)  # it is leaving already
            assert await one.report(1) == "continue"
            assert await one.report(2, f"x/{one.attempt.run}/checkpoint_2") == "stop"
            await one.attempt.worker_ended(0, WorkerEnded(has_stopped=True))
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == PREEMPTED
            assert "the group of 1 can have 3 workers" in outcome.failure.message
            assert one.attempt.why_workers_not_reusable() is None
            assert set(one.service.world_sizes[one.trial]) == {1}

    play(run)


def test_a_users_stop_and_a_drain_come_before_a_resize(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": [1, 4]}) as one:
            one.attempt.group_starts(1)
            one.attempt.resize(3)
            one.service.order(one.trial, Decision.STOP, "the user")
            await one.comes_to(Stopping)
            assert await one.report(0) == "stop"
            await one.attempt.worker_ended(0, WorkerEnded(has_stopped=True))
            assert await one.conclude() == Outcome("stopped", began=True)

    play(run)
