"""The end of a service."""

import asyncio
from typing import Any
from unittest.mock import MagicMock, call

from starlette.datastructures import State

from service.app.lifespan import running


def test_all_loops_are_asked_to_stop_before_one_is_waited_for() -> None:
    loops = MagicMock()

    async def run() -> None:
        state: dict[str, Any] = {"context": MagicMock(), "reporting": MagicMock(), "loops": [loops.first, loops.second]}
        async with running(State(state)):
            pass

    asyncio.run(run())
    assert loops.method_calls[:2] == [call.first.ask_to_stop(), call.second.ask_to_stop()]
    assert [name for name, *_ in loops.method_calls[2:]] == ["first.stop", "second.stop"]
