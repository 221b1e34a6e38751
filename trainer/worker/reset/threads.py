"""The threads that a trial has left running in its process."""

import threading
import time

HARMLESS_THREADS = ("TMonitor", "tqdm_monitor", "asyncio_", "pin_memory", "InductorSubproc")
"""Threads of widely used libraries. They wait for work, hold no data of a trial, and never end."""

ENDING_THREADS = ("iter_threaded", "map_tp_", "Prefetcher")
"""Threads of a loop over a dataset. They notice late that the loop was left, and end with the dataset server."""

THREADS_END_SECONDS = 1.0
"""How long threads that the trial has started may take to end."""

STARTING_POLL_SECONDS = 0.001


def why_threads_are_left(known: frozenset[threading.Thread]) -> str | None:
    left = threads_left(known)
    return f"the training function left threads running: {', '.join(left)}" if left else None


def threads_left(known: frozenset[threading.Thread]) -> list[str]:
    """The names of other threads that do not end within THREADS_END_SECONDS, without those that do no harm."""
    running = {*threading.enumerate()} - known - {threading.current_thread()}
    unknown = [thread for thread in running if not thread.name.startswith(HARMLESS_THREADS)]
    deadline = time.monotonic() + THREADS_END_SECONDS
    for thread in unknown:
        _join(thread, deadline)
    return sorted(t.name for t in unknown if t.is_alive() and not t.name.startswith(ENDING_THREADS))


def _join(thread: threading.Thread, deadline: float) -> None:
    """`threading.enumerate` also has a thread that another one is just starting: such a thread cannot be joined yet."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            thread.join(left)
        except RuntimeError:
            time.sleep(STARTING_POLL_SECONDS)
        else:
            return
