"""Ray Train's synchronization actor, in which the ranks of a run wait for each other, with repeatable calls."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import ray
from ray.train.v2._internal.execution.checkpoint.sync_actor import SynchronizationActor

from trainer.ray_train.actor_call_retries import at_least_once

KNOWN_ANSWERS = 4
"""Of each rank, how many are kept beside its newest call. It waits for its answers, so no old call is repeated."""

RaysOwn: Any = SynchronizationActor.__ray_metadata__.modified_class


class AnsweredCalls:
    """The newest calls of one rank, by their task ids. An answer may be a large array in Ray's object store."""

    def __init__(self) -> None:
        self._answers: dict[str | None, asyncio.Future[Any]] = {}

    def answer(self, call: str | None, make: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Return the answer to the call, which only the call itself makes, and no repetition of it."""
        if call not in self._answers:
            self._forget_old()
            self._answers[call] = asyncio.ensure_future(make())
        return self._answers[call]

    def _forget_old(self) -> None:
        """A call without an answer is kept however old it is: its repetition would join a second time."""
        answered = [call for call, answer in self._answers.items() if answer.done()]
        for call in answered[:-KNOWN_ANSWERS]:
            del self._answers[call]


class Synchronization(RaysOwn):  # type: ignore[misc]
    """Ray's own, but Ray repeats a lost call of it, and a repetition gets the answer to the call.

    Otherwise the rank would join twice: the second time the ranks' next synchronization, with what belongs to this one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: defaultdict[int, AnsweredCalls] = defaultdict(AnsweredCalls)

    @at_least_once
    async def broadcast_from_rank_zero(self, world_rank: int, *args: Any, **kwargs: Any) -> Any:
        """As Ray's. A repetition has the task id of the call."""
        join = partial(super().broadcast_from_rank_zero, world_rank, *args, **kwargs)
        call = ray.get_runtime_context().get_task_id()
        return await asyncio.shield(self._calls[world_rank].answer(call, join))


Synchronization.__name__ = RaysOwn.__name__  # Ray names the actor's process after it


def synchronization_actor_class() -> Any:
    """It takes the place of Ray's actor class."""
    return ray.remote(num_cpus=0)(Synchronization)
