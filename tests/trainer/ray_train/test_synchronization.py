"""What the synchronization actor keeps of the ranks' calls, without Ray around it."""

import asyncio
import weakref
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

RANKS = 2
CALLS = 30


class Data:
    """Stands in for an array that a rank broadcasts."""


@pytest.fixture
def task_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    context = SimpleNamespace(get_task_id=lambda: f"task {next(numbers)}")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)


@pytest.mark.usefixtures("task_ids")
def test_only_the_newest_answers_to_each_rank_are_kept() -> None:
    from trainer.ray_train.synchronization import KNOWN_ANSWERS, Synchronization  # noqa: PLC0415 - heavy

    async def broadcast() -> list[Data]:
        actor, sent = Synchronization(), []
        for _ in range(CALLS):
            data = Data()
            sent.append(weakref.ref(data))
            answers = (actor.broadcast_from_rank_zero(rank, RANKS, data, "broadcast") for rank in range(RANKS))
            assert await asyncio.gather(*answers) == [data] * RANKS
            del data, answers
        return [kept for one in sent if (kept := one()) is not None]

    assert len(asyncio.run(broadcast())) <= KNOWN_ANSWERS + 1


def test_a_call_that_is_not_answered_is_known_however_many_follow() -> None:
    from trainer.ray_train.synchronization import AnsweredCalls  # noqa: PLC0415 - heavy

    async def repeat() -> bool:
        calls, joined = AnsweredCalls(), asyncio.Event()

        async def join() -> Any:
            return await joined.wait()

        async def answer_immediately() -> None:
            pass

        waiting = calls.answer("waiting", join)
        for number in range(CALLS):
            await calls.answer(f"call {number}", answer_immediately)
        is_known = calls.answer("waiting", answer_immediately) is waiting
        joined.set()
        return is_known and await waiting

    assert asyncio.run(repeat())
