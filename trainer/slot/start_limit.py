"""How long the workers of an attempt may take to start.

Ray waits without end for the answer of a new worker, and after a network between nodes was cut, such an answer may
never come. Once training runs, Ray's own health checks notice a worker that does not answer.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainer.ray_train.runners import START_SECONDS
from trainer.slot.attempt.attempt import Attempt
from trainer.worker.failures import LOST, Failure

SETUP_SECONDS = 600
"""Ray's default for how long a runtime environment may take to be set up."""


def start_limit(runtime_env: Mapping[str, Any], answer_seconds: float) -> float | None:
    """The seconds from the run's begin until all workers have started, or None without a limit.

    `runtime_env` is what the trial asks of Ray, `answer_seconds` what the processes may take once they can start.
    """
    seconds = START_SECONDS + answer_seconds
    if not runtime_env:
        return seconds
    setup = (runtime_env.get("config") or {}).get("setup_timeout_seconds", SETUP_SECONDS)
    return None if setup < 0 else seconds + setup


@contextlib.contextmanager
def start_limited(attempt: Attempt, seconds: float | None, end: Callable[[Failure], None]) -> Iterator[None]:
    """Call `end` if not all workers have started after so many seconds, in a thread of its own."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, _end_unless_started, (attempt, seconds, end))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_unless_started(attempt: Attempt, seconds: float, end: Callable[[Failure], None]) -> None:
    ranks = attempt.ranks
    if not ranks.have_all_started and not attempt.state.is_concluded:
        started = f"{len(ranks.started)} of {ranks.world_size} workers have started within {seconds:g} s"
        end(Failure(LOST, f"{started}; Ray's logs of their nodes may say why"))
