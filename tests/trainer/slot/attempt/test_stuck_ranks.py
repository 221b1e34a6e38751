"""A rank that waits in a report for one that has returned."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from tests.trainer.slot.attempt.played_attempt import STARTED, Played, play, played
from trainer.slot.attempt.attempt_state import Draining, Resizing, Running, State, Stopping, Stuck
from trainer.worker.failures import USER_ERROR
from trainer.worker.messages import RankReport, WorkerEnded, WorkerStarted

pytestmark = pytest.mark.slow


class PlayedWorker:
    """A worker that answers in which report it waits, and counts the questions."""

    def __init__(self, waiting_report: int | None) -> None:
        self.waiting_report = waiting_report
        self.is_dead = False
        self.asked = asyncio.Event()
        self.execute = SimpleNamespace(remote=self._answer)

    async def _answer(self, _question: Any) -> int | None:
        self.asked.set()
        if self.is_dead:
            raise RayActorError
        return self.waiting_report


def starts(one: Played, waiting_report: int | None) -> PlayedWorker:
    """Rank 1 starts."""
    one.attempt.stuck_search.check_seconds = 0.01
    worker = PlayedWorker(waiting_report)
    one.attempt.worker_started(1, WorkerStarted(**{**vars(STARTED), "actor": worker}))
    return worker


async def both_report(one: Played, sequence: int) -> None:
    reports = [RankReport(sequence, rank, 2, {"loss": 1.0} if rank == 0 else None, None) for rank in (0, 1)]
    assert set(await asyncio.gather(*(one.attempt.report(report) for report in reports))) == {"continue"}


@pytest.mark.parametrize("report_count", [0, 1])
def test_a_rank_that_waits_for_one_that_has_returned_fails_the_attempt(tmp_path: Path, report_count: int) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            worker = starts(one, waiting_report=None)
            for sequence in range(report_count):
                await both_report(one, sequence)
            await one.attempt.worker_ended(0, WorkerEnded())
            await worker.asked.wait()
            assert one.attempt.state.current == Running()
            worker.waiting_report = report_count
            await one.comes_to(Stuck)
            assert one.runner.ended_count == 1
            outcome = await one.conclude()
            assert outcome is not None
            assert outcome.failure is not None
            assert outcome.failure.kind == USER_ERROR
            assert outcome.failure.message.startswith("rank 0 has returned while rank 1 waits for it in ray.")

    play(run)


@pytest.mark.parametrize("order", [Stopping("it has run for 60 seconds"), Resizing(4), Draining()])
def test_a_rank_is_found_that_waits_in_vain_while_the_attempt_is_to_leave(tmp_path: Path, order: State) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            starts(one, waiting_report=0)
            assert one.attempt.state.move(order)
            await one.attempt.worker_ended(0, WorkerEnded())
            await one.comes_to(Stuck)
            assert one.runner.ended_count == 1

    play(run)


@pytest.mark.parametrize("how", ["trains on", "waits in a report that the other one has made", "has died"])
def test_a_rank_that_may_still_return_is_left_alone(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        async with played(tmp_path, scaling={"num_workers": 2}) as one:
            worker = starts(one, waiting_report=0 if how.startswith("waits") else None)
            worker.is_dead = how == "has died"
            await both_report(one, 0)
            await one.attempt.worker_ended(0, WorkerEnded())
            for _ in range(3):
                worker.asked.clear()
                await worker.asked.wait()
            assert one.attempt.state.current == Running()
            await one.attempt.worker_ended(1, WorkerEnded())
            assert (outcome := await one.conclude()) is not None
            assert outcome.status == "completed"

    play(run)
