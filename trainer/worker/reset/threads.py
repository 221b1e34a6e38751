"""The threads that a trial has left running in its process."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import thread as thread_pools
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

HARMLESS_FILES = (
    "/tqdm/_monitor.py",
    "/torch/utils/data/_utils/pin_memory.py",
    "/torch/_inductor/compile_worker/subproc_pool.py",
    "/torch/_inductor/compile_worker/timer.py",
)
"""The ends of the files whose threads wait for work, hold no data of a trial, and never end."""

ENDING_FILES = ("/ray/data/_internal/block_batching/util.py", "/ray/data/_internal/util.py")
"""The source files of threads of a loop over a dataset, which notice late that it was left, and end with its server."""

THREADS_END_SECONDS = 1.0
"""How long threads that the trial has started may take to end."""

POLL_SECONDS = 0.001

DUMMY: type | tuple[()] = getattr(threading, "_DummyThread", ())
"""What `threading` lists for a thread that another module has started. A test fails without it."""


@dataclass(frozen=True)
class KnownThreads:
    """The threads of a process before a trial. `threading` does not list those that other modules have started."""

    listed: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    idents: frozenset[int] = field(default_factory=lambda: frozenset(_frames()))


def why_threads_are_left(known: KnownThreads) -> str | None:
    left = threads_left(known)
    return f"the training function left threads running: {', '.join(left)}" if left else None


def threads_left(known: KnownThreads) -> list[str]:
    """The names of other threads that do not end within THREADS_END_SECONDS, without those that do no harm."""
    deadline = time.monotonic() + THREADS_END_SECONDS
    while (found := _started_since(known, HARMLESS_FILES)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return sorted(_started_since(known, HARMLESS_FILES + ENDING_FILES)) if found else []


def _started_since(known: KnownThreads, excused: tuple[str, ...]) -> list[str]:
    """The names of the threads. One that `threading` has not started counts while it runs Python.

    Such a thread is also listed, as a dummy, once it has asked for itself, and then stays listed after its end.
    """
    listed = [thread for thread in threading.enumerate() if not isinstance(thread, DUMMY)]
    frames = _frames()
    new = [(thread.name, frames.get(thread.ident or 0)) for thread in listed if _is_new(thread, known)]
    others = set(frames) - {thread.ident for thread in listed} - known.idents - {threading.get_ident()}
    new += [(_description(frames[ident]), frames[ident]) for ident in others]
    return [name for name, frame in new if frame is None or not _is_harmless(frame, excused)]


def _is_new(thread: threading.Thread, known: KnownThreads) -> bool:
    return thread not in known.listed and thread is not threading.current_thread()


def _is_harmless(frame: FrameType, excused: tuple[str, ...]) -> bool:
    """Whether the thread waits for work in a `ThreadPoolExecutor`, or runs a function of one of the `excused` files.

    Libraries keep thread pools; torch's compiler has one. A thread's name proves nothing: any code may choose it.
    """
    code = frame.f_code
    if (code.co_filename, code.co_name) == (thread_pools.__file__, "_worker"):
        return True
    return _first(frame).f_code.co_filename.endswith(excused)


def _first(frame: FrameType) -> FrameType:
    """The frame of the thread's target, below those in which `threading` calls it."""
    first = frame
    for outer in _outwards(frame):
        if outer.f_code.co_filename != threading.__file__:
            first = outer
    return first


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    outer: FrameType | None = frame
    while outer is not None:
        yield outer
        outer = outer.f_back


def _description(frame: FrameType) -> str:
    code = _first(frame).f_code
    return f"{code.co_name} of {Path(code.co_filename).name}"


def _frames() -> dict[int, FrameType]:
    return sys._current_frames()  # noqa: SLF001 - the documented way
