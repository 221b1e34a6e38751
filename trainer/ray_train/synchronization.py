"""Ray Train's synchronization actor, in which the ranks of a run wait for each other, with repeatable calls."""

import asyncio
from collections import OrderedDict
from typing import Any

import ray
from ray.train.v2._internal.execution.checkpoint.sync_actor import SynchronizationActor

from trainer.ray_train.repeated_calls import at_least_once

KNOWN_CALLS = 10_000
"""The newest calls that a repetition is known for. A rank has made few others while it waits for the answer to one."""

RaysOwn: Any = SynchronizationActor.__ray_metadata__.modified_class


class Synchronization(RaysOwn):  # type: ignore[misc]
    """Ray's own, but Ray repeats a lost call of it, and a repetition gets the answer to the call.

    Otherwise the rank would join twice: the second time the ranks' next synchronization, with what belongs to this one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: OrderedDict[str | None, asyncio.Future[Any]] = OrderedDict()

    @at_least_once
    async def broadcast_from_rank_zero(self, *args: Any, **kwargs: Any) -> Any:
        """As Ray's. A repetition has the task id of the call."""
        call = ray.get_runtime_context().get_task_id()
        if call not in self._calls:
            self._calls[call] = asyncio.ensure_future(super().broadcast_from_rank_zero(*args, **kwargs))
        if len(self._calls) > KNOWN_CALLS:
            self._calls.popitem(last=False)
        return await asyncio.shield(self._calls[call])


Synchronization.__name__ = RaysOwn.__name__  # Ray names the actor's process after it


def synchronization_actor_class() -> Any:
    """It takes the place of Ray's actor class."""
    return ray.remote(num_cpus=0)(Synchronization)
