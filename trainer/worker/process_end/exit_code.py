"""Whether a worker process has ended itself, and with which exit code.

For Ray, a process that calls `os._exit(3)` is lost like one that was killed: it sees the end of a connection in both
cases. So a worker leaves its exit code in a file on its node. A signal leaves nothing there, and neither does a process
that Ray ends.
"""

import atexit
import ctypes
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

UNBUFFERED = 2
"""C's `_IONBF`."""

FILE_NAME = "paceline-exit-{pid}.status"
"""Beside the process's log. Ray's log monitor follows `worker*` only."""


@dataclass(frozen=True)
class OwnExit:
    """A process has ended itself. `location` is `file.py:line` of the call, where Python made it."""

    code: int
    location: str = ""

    def describe(self, process: str) -> tuple[str, str]:
        """The failure in one line, which begins with `process`, and its traceback, which is not known."""
        code = f"exit code {self.code}" + (f" ({self.location})" if self.location else "")
        advice = "raise an exception instead, so that its traceback is kept"
        return f"{process} ended itself with {code}; {advice}", ""


def record_exit_code(log: str | None) -> str | None:
    """From now on, `os._exit` and C's `exit` leave the exit code in a file beside the log. Returns the file.

    A repeated call does nothing more.
    """
    recorded: str | None = getattr(os._exit, "file", None)
    if recorded is not None or log is None:
        return recorded
    path = str(Path(log).with_name(FILE_NAME.format(pid=os.getpid())))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    _record_exit_of_c(descriptor)
    exit_: Any = _recording_exit(descriptor, os._exit)
    exit_.file = path
    os._exit = exit_

    def stop_recording() -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    os.register_at_fork(after_in_child=stop_recording)
    atexit.register(stop_recording)  # the interpreter shuts down: Ray ends the process, or SIGTERM does
    return path


def read_exit_code(path: str | None) -> OwnExit | None:
    """How the process has ended itself. None if it lives or was killed."""
    try:
        content = Path(path).read_bytes() if path is not None else b""
    except OSError:
        return None
    return OwnExit(content[0], content[1:].decode(errors="replace")) if content else None


def _recording_exit(descriptor: int, exit_: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    def _exit(status: int) -> NoReturn:
        os.write(descriptor, bytes([status & 0xFF]) + _caller().encode(errors="replace"))
        exit_(status)

    return _exit


def _caller() -> str:
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""


def _record_exit_of_c(descriptor: int) -> None:
    """Have C's `exit(status)` write the status as one byte. glibc's `on_exit` calls `fputc(status, stream)`.

    No Python code may run there, because the interpreter may be gone by then.
    """
    c: Any = ctypes.CDLL(None)
    if not hasattr(c, "on_exit"):
        return
    c.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(c.fdopen(descriptor, b"w"))
    c.setvbuf(stream, None, UNBUFFERED, 0)
    c.on_exit(c.fputc, stream)
