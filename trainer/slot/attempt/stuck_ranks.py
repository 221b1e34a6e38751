"""Ranks that wait in a report for one that has returned.

A report of Ray Train's returns when all ranks have made it, and waits without end for one that never will.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ray.exceptions import RayError

from trainer.ray_train.train_session import waiting_report
from trainer.slot.attempt.attempt_state import AttemptState, State, Stuck
from trainer.slot.attempt.ranks import Ranks
from trainer.worker.failures import USER_ERROR, Failure

ANSWER_SECONDS = 5.0


class StuckSearch:
    """Asks the ranks that still train, once another one has returned, until one waits in vain: `end` gets `Stuck`.

    `made` is how many reports each rank has made.
    """

    check_seconds = 5.0

    def __init__(
        self, ranks: Ranks, made: Mapping[int, int], state: AttemptState, end: Callable[[State], None]
    ) -> None:
        self._ranks, self._made, self._state, self._end = ranks, made, state, end
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Unless it has begun. It lasts until the workers are ended: no order to leave reaches a rank that waits."""
        if self._task is None:
            self._task = asyncio.create_task(self._search())

    async def _search(self) -> None:
        await asyncio.sleep(self.check_seconds)  # the others usually return soon, too
        while not (self._state.is_ending_now or self._state.is_concluded):
            if failure := await self._find():
                self._end(Stuck(failure))
                return
            await asyncio.sleep(self.check_seconds)

    async def _find(self) -> Failure | None:
        returned = {rank: self._made.get(rank, 0) for rank in self._ranks.returned}
        for rank in self._ranks.silent:
            number = await _waiting_report_of(self._ranks.started[rank].actor)
            for other, count in sorted(returned.items()):
                if number is not None and number >= count:
                    return _waits_in_vain(rank, other)
        return None


async def _waiting_report_of(worker: Any) -> int | None:
    try:
        number: int | None = await asyncio.wait_for(worker.execute.remote(waiting_report), ANSWER_SECONDS)
    except (RayError, TimeoutError):
        return None  # it has died, or is busy; another check follows
    return number


def _waits_in_vain(waiting: int, returned: int) -> Failure:
    what = f"rank {returned} has returned while rank {waiting} waits for it in ray.train.report()"
    return Failure(USER_ERROR, f"{what}: all ranks must report equally often")
