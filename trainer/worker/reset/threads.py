"""The threads that a trial has left running in its process."""

import sys
import threading
import time
from concurrent.futures import thread as thread_pools

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
    unknown = [t for t in running if not (t.name.startswith(HARMLESS_THREADS) or _waits_for_work(t))]
    deadline = time.monotonic() + THREADS_END_SECONDS
    for thread in unknown:
        _join(thread, deadline)
    left = [thread for thread in unknown if thread.is_alive() and not _waits_for_work(thread)]
    return sorted(thread.name for thread in left if not thread.name.startswith(ENDING_THREADS))


def _waits_for_work(thread: threading.Thread) -> bool:
    """Whether it is one of a `ThreadPoolExecutor` without work. Libraries keep those; torch's compiler has one."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way
    return frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == (thread_pools.__file__, "_worker")


def _join(thread: threading.Thread, deadline: float) -> None:
    """`threading.enumerate` also has a thread that another one is just starting: such a thread cannot be joined yet."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            thread.join(left)
        except RuntimeError:
            time.sleep(STARTING_POLL_SECONDS)
        else:
            return
