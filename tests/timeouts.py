"""How long a test waits."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 120.0
"""How long a test waits for what must happen. A busy machine may stop any thread or process for seconds."""

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], seconds: float = PATIENCE_SECONDS) -> Found:
    """Return the condition's first result that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found
