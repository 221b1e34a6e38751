"""Gathers a value of each rank, and gives all ranks the values of all. Ray Train has only a broadcast from rank 0."""

import asyncio
from typing import Any


class AllGather:
    """Belongs to one event loop; every method is called there."""

    def __init__(self) -> None:
        self._values: dict[int, dict[int, Any]] = {}
        self._complete: dict[int, asyncio.Future[list[Any]]] = {}
        self._is_closed = False

    async def __call__(self, number: int, rank: int, world_size: int, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order, for this call's number; none once it is closed."""
        if self._is_closed:
            return []
        values = self._values.setdefault(number, {})
        complete = self._complete.setdefault(number, asyncio.get_running_loop().create_future())
        values[rank] = value
        if len(values) == world_size:
            complete.set_result([values[one] for one in range(world_size)])
            del self._values[number], self._complete[number]
        return await asyncio.shield(complete)

    def close(self) -> None:
        """Give the ranks that wait nothing: another one has died."""
        self._is_closed = True
        for complete in self._complete.values():
            complete.set_result([])
        self._values.clear()
        self._complete.clear()
