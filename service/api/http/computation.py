"""Calls that compute: in worker processes, and no longer than their caller waits."""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.runtime.computation.compute_pool import ComputePool

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def computed(
    request: Request, pool: ComputePool, work: Callable[[*Arguments], Result], *arguments: *Arguments
) -> Result:
    """As `ComputePool.run`, until the client has gone: then raise ClientDisconnect. The body must have been read."""
    computing = asyncio.ensure_future(pool.run(work, *arguments))
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((computing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not computing.done():
            raise ClientDisconnect
        return computing.result()
    finally:
        computing.cancel()
        leaving.cancel()
        await asyncio.gather(computing, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
