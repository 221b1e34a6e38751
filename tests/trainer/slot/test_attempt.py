"""One attempt against a service, with the test in the place of the workers: every way in which it may be ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService
from trainer.slot.assignment import Assignment
from trainer.slot.attempt import Attempt
from trainer.slot.attempt_state import Abandoned, Killed, LeaseLost, Preempted, Refused, State, Stopping
from trainer.slot.outcome import Outcome
from trainer.wire import Decision
from trainer.worker.messages import WorkerEnded, WorkerStarted

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

STARTED = WorkerStarted(
    actor=None, node="n", pid=1, placement_group=None, log_positions={}, oom_counter=None, oom_kills=None
)
SECONDS = 20


class CountingRunner:
    """It has no workers, and counts how often they are to end."""

    placement_group = None

    def __init__(self) -> None:
        self.ended_count = 0
        self.is_ending = False

    def worker_started(self, actor: Any) -> None:
        pass

    def wake(self, *, ending: bool = False) -> None:
        self.is_ending = self.is_ending or ending

    def end_workers(self) -> None:
        self.ended_count += 1


class Played:
    """An attempt of one rank, which the test plays."""

    def __init__(self, service: FakeService, **fields: Any) -> None:
        self.service = service
        self.trial = service.add_trial({"entrypoint": "train:train_fn"}, **fields)
        self.runner = CountingRunner()
        runner: Any = self.runner
        assignment = Assignment.from_json(service.assign(self.trial))
        self.attempt = Attempt(assignment, service.url, asyncio.get_running_loop(), runner, lambda _uri: None)

    async def report(self, sequence: int) -> str:
        return await self.attempt.barrier.report(sequence, 0, 1, {"loss": 1.0}, None)

    async def comes_to(self, state: type[State]) -> None:
        await asyncio.to_thread(
            until, lambda: isinstance(self.attempt.state.current, state), f"it comes to {state.__name__}", SECONDS
        )

    async def conclude(self) -> Outcome | None:
        return await asyncio.to_thread(self.attempt.conclude, None, lambda _rank: ("", None))

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


def test_a_stop_is_the_answer_to_the_next_report_and_a_kill_follows_after_the_grace_period(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, stop_grace_seconds=0.5) as one:
            one.service.order(one.trial, Decision.STOP, "the user")
            await one.comes_to(Stopping)
            assert await one.report(0) == "stop"
            await one.comes_to(Killed)
            assert one.runner.ended_count
            assert await one.conclude() == Outcome("stopped", began=True)
            assert one.attempt.why_workers_not_reusable() == "the attempt was killed"

    play(run)


def test_the_time_limit_stops_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, max_seconds=0.1) as one:
            await one.comes_to(Stopping)
            assert one.attempt.state.current == Stopping("max_trial_seconds: 0.1 seconds are over")

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
    monkeypatch.setattr("trainer.slot.attempt.GIVE_BACK_SECONDS", 0.2)

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
