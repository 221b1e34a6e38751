"""An attempt that early stopping, a user or a time limit ends."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from ray.exceptions import RayError

from tests.trainer.conftest import until
from tests.trainer.slot.attempt.played_attempt import (
    SECONDS,
    STARTED,
    CountingRunner,
    Played,
    play,
    played,
)
from trainer.slot.attempt.attempt_state import Killed, Stopping
from trainer.slot.attempt.outcome import AttemptOutcome
from trainer.slot.attempt.report_barrier import ReportBarrier
from trainer.wire import Answer, Decision
from trainer.worker.messages import RankReport, WorkerEnded

pytestmark = [pytest.mark.slow, pytest.mark.ray]  # Ray's filters of warnings: the slot's modules import Ray


def test_a_stop_is_the_answer_to_the_next_report_and_a_kill_follows_after_the_grace_period(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, stop_grace_seconds=0.5) as one, played(tmp_path, stop_grace_seconds=600) as other:
            for attempt in (other, one):
                attempt.service.order(attempt.trial, Decision.STOP, "the user")
                await attempt.comes_to(Stopping)
                assert await attempt.report(0) == "stop"
            await one.comes_to(Killed)
            assert one.runner.ended_count
            assert await one.conclude() == AttemptOutcome("stopped", began=True)
            assert one.attempt.why_workers_not_reusable() == "the attempt was killed"
            assert isinstance(other.attempt.state.current, Stopping)

    play(run)


def test_an_order_to_end_is_followed_although_ray_does_not_end_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_workers(_runner: CountingRunner) -> None:
        raise RayError("the head does not answer")

    monkeypatch.setattr(CountingRunner, "end_workers", end_workers)

    async def run() -> None:
        async with played(tmp_path) as one:
            waiting = asyncio.create_task(one.attempt.barrier.report(RankReport(0, 1, 2, None, None)))  # for rank 0
            one.attempt.end_now(Killed())
            assert await waiting == "stop"

    play(run)


@pytest.mark.parametrize("deciding", [1, 3])
def test_a_function_that_trained_on_past_its_decision_was_stopped_and_its_later_checkpoints_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deciding: int
) -> None:
    """The deciding report may be its last one: without the outage it would have left there."""
    monkeypatch.setattr(ReportBarrier.__init__, "__kwdefaults__", {"wait_seconds": 0})

    async def run() -> None:
        async with played(tmp_path) as one:
            one.service.decide = lambda *_: Answer(decision=Decision.STOP, deciding_sequence=deciding)
            one.service.away = True
            run_name = one.attempt.run_name
            answers = [await one.report(number, f"x/{run_name}/checkpoint_{number}") for number in range(4)]
            assert answers == ["continue"] * 4
            await one.attempt.worker_ended(0, WorkerEnded())
            one.service.away = False
            assert await one.conclude() == AttemptOutcome("stopped", began=True)
            kept = f"checkpoint_{deciding}"
            assert one.attempt.checkpoints.known_names() == [kept]
            assert {uri.rpartition("/")[2] for uri in one.removed} == {f"checkpoint_{n}" for n in range(4)} - {kept}

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
            assert told(one) == ["is killed if it does not stop within 0.1 s"]

    play(run)


def test_it_is_killed_so_long_after_the_functions_first_line_without_a_report(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path, max_seconds=0.1, kill_after_seconds=0.2) as one:
            one.attempt.function_began()
            await one.comes_to(Killed)
            assert told(one) == ["is killed when it has run for 0.2 s"]
            assert await one.conclude() == AttemptOutcome("stopped", began=True)

    play(run)


def told(one: Played) -> list[str]:
    """What the workers were to write into the log, each with the stack of its training function."""
    return [call.args[0] for call in one.runner.called if isinstance(call, partial)]


def test_without_a_report_the_log_says_where_the_function_is_before_the_service_takes_the_lease(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with played(tmp_path, report_timeout_seconds=0.2) as one:
            await asyncio.to_thread(until, lambda: told(one), "the log says it", SECONDS)
            assert await one.report(0) == "continue"
            await asyncio.to_thread(until, lambda: len(told(one)) == 2, "it says so again after a report", SECONDS)
            assert {*told(one)} == {"is killed if the trial does not report for 0.2 s"}

    play(run)


def test_a_worker_that_starts_after_the_kill_is_ended_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with played(tmp_path) as one:
            one.attempt.end_now(Killed())
            one.attempt.worker_started(0, STARTED)
            assert one.runner.ended_count == 2

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
            assert await one.conclude() == AttemptOutcome("stopped", began=True)

    play(run)
