"""Calls that overlap."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def at_once(count: int, call: Callable[[], Result]) -> list[Result]:
    """The results of so many calls, which begin together in threads of their own. Raises what a call raises."""
    start = threading.Barrier(count)

    def begin() -> Result:
        start.wait()
        return call()

    with ThreadPoolExecutor(count) as threads:
        return [begun.result() for begun in [threads.submit(begin) for _ in range(count)]]
