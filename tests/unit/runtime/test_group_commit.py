"""Which requests share a batch. Times are those of the test, so that none of them decides."""

import asyncio
from collections.abc import Sequence

import pytest

from service.runtime import group_commit
from service.runtime.group_commit import CommitFailed, GroupCommit
from tests.timeouts import PATIENCE_SECONDS

CALLERS = 8


class Batches:
    """Answers each request with itself, and notes the batches."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []
        self.group = GroupCommit[int, int]("batches", self._commit)

    def _commit(self, requests: Sequence[int]) -> Sequence[int]:
        self.found.append(list(requests))
        return requests

    async def first_answers(self) -> None:
        """All callers are in one batch, because the thread starts after them."""
        calls = [asyncio.create_task(self.group.submit(caller)) for caller in range(CALLERS)]
        await asyncio.sleep(0)
        self.group.start()
        assert await asyncio.gather(*calls) == list(range(CALLERS))


@pytest.fixture
def batches() -> Batches:
    return Batches()


def waits(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(group_commit, "RETURN_SECONDS", seconds)


def test_callers_that_come_back_one_by_one_share_the_next_batch(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits(monkeypatch, PATIENCE_SECONDS)

    async def come_back() -> None:
        await batches.first_answers()
        calls = []
        for caller in range(CALLERS):
            await asyncio.to_thread(lambda: None)  # the thread of the batches has its turn
            calls.append(asyncio.create_task(batches.group.submit(caller)))
        await asyncio.gather(*calls)

    asyncio.run(come_back())
    batches.group.stop()
    assert batches.found == [list(range(CALLERS))] * 2


def test_a_caller_does_not_wait_long_for_those_that_do_not_come_back(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits(monkeypatch, 0.001)

    async def come_back() -> None:
        await batches.first_answers()
        assert await batches.group.submit(0) == 0

    asyncio.run(asyncio.wait_for(come_back(), PATIENCE_SECONDS))
    batches.group.stop()
    assert batches.found == [list(range(CALLERS)), [0]]


def test_the_end_commits_what_waits_for_others(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    waits(monkeypatch, PATIENCE_SECONDS)

    async def end() -> None:
        await batches.first_answers()
        last = asyncio.create_task(batches.group.submit(7))
        await asyncio.sleep(0)
        await asyncio.to_thread(batches.group.stop, PATIENCE_SECONDS)
        assert await last == 7

    asyncio.run(asyncio.wait_for(end(), PATIENCE_SECONDS))
    assert batches.found == [list(range(CALLERS)), [7]]


def test_a_commit_that_exits_is_answered_and_the_thread_goes_on() -> None:
    def commit(requests: Sequence[int]) -> Sequence[int]:
        if 0 in requests:
            raise SystemExit(3)
        return requests

    group = GroupCommit[int, int]("exits", commit)

    async def call() -> None:
        group.start()
        with pytest.raises(CommitFailed, match="SystemExit: 3"):
            await group.submit(0)
        assert await group.submit(1) == 1

    asyncio.run(asyncio.wait_for(call(), PATIENCE_SECONDS))
    group.stop()
