"""How long a test waits."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 120.0
"""How long a test waits for what must happen. A busy machine may stop any thread or process for seconds."""

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], seconds: float = PATIENCE_SECONDS, what: str = "it") -> Found:
    """Return the condition's first result that is true.

    A pause is nine times as long as a look: some looks take a service tens of milliseconds, and what is waited for
    needs the same processors, for minutes.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        ended = time.monotonic()
        assert ended < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(min(max(SHORTEST_PAUSE_SECONDS, 9 * (ended - began)), LONGEST_PAUSE_SECONDS))
