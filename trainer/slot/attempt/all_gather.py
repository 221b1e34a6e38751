"""Gathers a value of each rank, and gives all ranks the values of all. Ray Train has only a broadcast from rank 0."""

import asyncio
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Gathering:
    """One call of all ranks: their values so far, and the answer for all of them."""

    answer: asyncio.Future[list[Any]]
    values: dict[int, Any] = field(default_factory=dict)


class AllGather:
    """Belongs to one event loop; every method is called there. A rank makes one call after the other.

    A rank's call may be repeated: an answer is kept until all ranks have called again, so that all have it.
    """

    def __init__(self) -> None:
        self._gatherings: dict[int, _Gathering] = {}
        self._newest_complete = 0
        self._is_closed = False

    async def __call__(self, number: int, rank: int, world_size: int, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, for this call's number; none once it is closed.

        Also none for a late repetition, whose rank has the answer.
        """
        if self._is_closed or number < self._newest_complete:
            return []
        gathering = self._gatherings.setdefault(number, _Gathering(asyncio.get_running_loop().create_future()))
        gathering.values.setdefault(rank, value)
        if len(gathering.values) == world_size and not gathering.answer.done():
            gathering.answer.set_result([gathering.values[one] for one in range(world_size)])
            self._gatherings.pop(number - 1, None)
            self._newest_complete = number
        return await asyncio.shield(gathering.answer)

    def close(self) -> None:
        """Give the ranks that wait nothing: another one has died."""
        self._is_closed = True
        for gathering in self._gatherings.values():
            if not gathering.answer.done():
                gathering.answer.set_result([])
        self._gatherings.clear()
