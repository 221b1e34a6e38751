"""A process that the user's code has forked with `os.fork()` ends where that code ends, as in a plain script."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from trainer.worker.user_code.user_frames import user_traceback


@contextlib.contextmanager
def ending_forked_children() -> Iterator[None]:
    """A child that leaves the context ends there: what follows is for the process that has entered it."""
    process, error = os.getpid(), None
    try:
        yield
    except BaseException as raised:
        if os.getpid() == process:
            raise
        error = raised
    if os.getpid() != process:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """End without the handlers of `atexit`, which are those of Ray's worker process."""
    code = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        code = 1
        text = f"{error.code}\n" if isinstance(error, SystemExit) else user_traceback(error)
        with contextlib.suppress(Exception):
            sys.stderr.write(text)
    for end in (_end_threads, _end_multiprocessing):
        with contextlib.suppress(Exception):
            end()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _end_threads() -> None:
    """Wait for the threads that it has started, and end the pools of concurrent.futures, as at the end of a script."""
    if (shut_down := getattr(threading, "_shutdown", None)) is not None:
        shut_down()


def _end_multiprocessing() -> None:
    """Send what queues still hold, and wait for the processes that this one has started, as at the end of a script.

    The processes of the one that has forked it, such as those of a DataLoader, are not its own, and go on.
    """
    util, process = (sys.modules.get(f"multiprocessing.{name}") for name in ("util", "process"))
    if util is None or process is None:
        return
    known: set[Any] = getattr(process, "_children", set())  # a fork copies it, and multiprocessing does not notice
    known.intersection_update([one for one in known if getattr(one, "_parent_pid", None) == os.getpid()])
    if (at_exit := getattr(util, "_exit_function", None)) is not None:  # what multiprocessing registers with `atexit`
        at_exit()
