"""Ranks that have more output than the service takes: what lets them go on, besides the service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.trainer.conftest import set_constant, until
from tests.trainer.slot.attempt.played_attempt import SECONDS, Played, play, played
from trainer.client.log_outbox import FULL_DISK_SECONDS, LogOutbox
from trainer.slot.attempt.attempt_state import LeaseLost

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray


class Clock:
    """Each look at it takes as long as output is kept for a full disk."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += FULL_DISK_SECONDS
        return self.now


@asynccontextmanager
async def waiting_rank(tmp_path: Path) -> AsyncIterator[tuple[Played, Callable[[], bool]]]:
    """An attempt whose rank waits for room, and whether it still does. It has to go on before the context ends."""
    async with played(tmp_path) as one:
        one.service.takes_logs.clear()
        try:
            one.attempt.logs.add(0, 0, 3_000_000 * "x", {})
            rank = asyncio.create_task(one.attempt.logs.room())
            await asyncio.to_thread(until, lambda: one.service.log_calls, "the first call with output", SECONDS)
            yield one, lambda: not rank.done()
            async with asyncio.timeout(SECONDS):
                await rank
        finally:
            one.service.takes_logs.set()


def test_a_rank_goes_on_when_its_output_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with waiting_rank(tmp_path) as (one, waits):
            assert waits()
            one.attempt.delivery.logs.close()

    play(run)


def test_a_rank_goes_on_when_the_outbox_learns_that_the_lease_is_lost(tmp_path: Path) -> None:
    """The heartbeat has learned of it before, which ends the workers and closes no outbox."""

    async def run() -> None:
        async with waiting_rank(tmp_path) as (one, waits):
            one.service.lose(one.trial)
            await one.comes_to(LeaseLost)
            assert waits()
            one.service.takes_logs.set()

    play(run)


def test_a_rank_goes_on_when_its_output_is_dropped_for_a_service_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, LogOutbox._gives_up, "time", Clock())

    async def run() -> None:
        async with waiting_rank(tmp_path) as (one, waits):
            assert waits()
            one.service.keeps_no_logs = True
            one.service.takes_logs.set()

    play(run)
