"""What becomes of a worker group in which one rank has failed."""

import asyncio
from collections.abc import Callable

from trainer.ray_train.runners import Runner
from trainer.slot.attempt.ranks import Ranks

OTHER_RANKS_SECONDS = 0.5
"""How long the other ranks have to report what happened to them after one rank has failed."""


class FailedGroup:
    """The other ranks may wait for the one that has failed, and never end: `end_workers` is called.

    It belongs to one event loop.
    """

    def __init__(self, ranks: Ranks, runner: Runner, end_workers: Callable[[], object]) -> None:
        self._ranks, self._runner, self._end_workers = ranks, runner, end_workers
        self._ending: asyncio.Task[None] | None = None

    async def end(self) -> None:
        """Search for the ranks that have died, and then end the others soon.

        Later failures, and repeated messages, wait for the first search: another one would take ranks for dead that
        were ended since.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._ranks.find_dead(self._runner.actors())
        asyncio.get_running_loop().call_later(OTHER_RANKS_SECONDS, self._end_workers)
