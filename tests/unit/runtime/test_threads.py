"""No kind of call takes the threads of another."""

import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio import to_thread

from service.runtime.computation.threads import ASSIGNING, BRIEF, Threads
from tests.timeouts import PATIENCE_SECONDS

ORDINARY = 3


@pytest.mark.parametrize("kind", ["brief", "checking", "assigning", "reading", "ordinary"])
def test_a_kind_of_call_that_has_taken_all_of_its_threads_stops_no_other_kind(kind: str) -> None:
    async def run() -> set[str]:
        to_thread.current_default_thread_limiter().total_tokens = ORDINARY
        threads, released, answered = Threads(), threading.Event(), set[str]()
        run_in: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "brief": threads.brief,
            "checking": threads.checking,
            "assigning": threads.assigning,
            "reading": threads.reading,
            "ordinary": to_thread.run_sync,
        }

        async def answer(other: str) -> None:
            await run_in[other](int)
            answered.add(other)

        async with anyio.create_task_group() as calls:
            for _ in range(max(ORDINARY, ASSIGNING, BRIEF)):
                calls.start_soon(run_in[kind], released.wait)
            with anyio.move_on_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as others:
                    for other in run_in.keys() - {kind}:
                        others.start_soon(answer, other)
            released.set()
        return answered

    assert anyio.run(run) == {"brief", "checking", "assigning", "reading", "ordinary"} - {kind}
