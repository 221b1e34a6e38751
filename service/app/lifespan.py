"""What runs while the application does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import State

from service.runtime.computation.threads import limit_ordinary_threads


@asynccontextmanager
async def running(state: State) -> AsyncIterator[None]:
    """Run what answers reports; at the end, stop and close all that the state has by then."""
    limit_ordinary_threads()
    state.reporting.start()
    yield
    state.context.stop()
    for loop in state.loops:
        loop.stop()
    state.reporting.stop()
    state.context.close()
