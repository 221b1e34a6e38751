"""What runs while the application does."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

from starlette.datastructures import State

from service.runtime.computation.threads import limit_ordinary_threads

if TYPE_CHECKING:  # imported only after the service answers reports
    from service.background.loop import Loop

STOP_SECONDS = 5.0
"""How long the loops may take together to end."""


@asynccontextmanager
async def running(state: State) -> AsyncIterator[None]:
    """Run what answers reports; at the end, stop and close all that the state has by then."""
    limit_ordinary_threads()
    state.reporting.start()
    yield
    state.context.stop()
    _stop_together(state.loops)
    state.reporting.stop()
    state.context.close()


def _stop_together(loops: Sequence["Loop"]) -> None:
    """Several of them may wait for a database that does not answer."""
    for loop in loops:
        loop.ask_to_stop()
    ends_at = monotonic() + STOP_SECONDS
    for loop in loops:
        loop.stop(max(0.0, ends_at - monotonic()))
