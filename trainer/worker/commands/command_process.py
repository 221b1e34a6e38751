"""The process of a command, which ends with the worker process that started it, and all its descendants with it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

LEAVE_SECONDS = 10.0
"""How long a command that was answered `stop` may take to end itself, before it gets SIGTERM."""

KEEPER = """
import ctypes, os, signal, subprocess, sys, threading, time

PR_SET_CHILD_SUBREAPER = 36
UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)

def end_as(code):
    if code < 0:
        if -code not in UNCATCHABLE:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)

def children():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            yield int(name)

def kill_all():
    while pids := list(children()):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)

def obey(lifeline, command):
    while os.read(lifeline, 1):
        try:
            os.killpg(command, signal.SIGTERM)
        except ProcessLookupError:
            pass
    kill_all()

if keeper := os.fork():
    end_as(os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1]))
os.setsid()
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
lifeline = int(sys.argv[1])
os.set_inheritable(lifeline, False)
command = subprocess.Popen(sys.argv[2:], start_new_session=True)
threading.Thread(target=obey, args=(lifeline, command.pid), daemon=True).start()
code = command.wait()
kill_all()
end_as(code)
"""
"""The program of the keeper: a process between the worker and the command, whose orphaned descendants it adopts.

Its lifeline is a pipe: a byte asks it to end the command by SIGTERM, and when the worker closes the pipe, or dies, it
kills the command and all descendants. It ends as the command ends: with its exit code, or by the same signal. It is not
the worker's child, but a child of that: Ray kills the children of a worker that it kills.
"""


class CommandProcess:
    """A running command. Its standard output is `stdout` if it is captured, else the worker's own."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, captures: bool) -> None:
        reading, self._lifeline = os.pipe()
        output, writing = open_fifo() if captures else (None, None)
        self.stdout: IO[bytes] | None = None if output is None else open(output, "rb", buffering=0)  # noqa: SIM115, PTH123
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-ISc", KEEPER, str(reading), *argv],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                pass_fds=[reading],
            )
        except BaseException:
            os.close(self._lifeline)
            if self.stdout is not None:
                self.stdout.close()
            raise
        finally:
            os.close(reading)
            if writing is not None:
                os.close(writing)

    def wait(self, seconds: float | None = None) -> int:
        """Return the exit code, or the negative number of the signal that ended it. Raises TimeoutExpired."""
        return self._process.wait(seconds)

    def exit_code(self) -> int | None:
        """As `wait` returns it; None while it runs."""
        return self._process.poll()

    def stop(self, grace_seconds: float, *, knows: bool = False) -> None:
        """End it by SIGTERM, and return after `grace_seconds` at the latest; `close` kills it then.

        A command that `knows` that it is to stop may end itself first, in up to half of the time.
        """
        leave_seconds = min(LEAVE_SECONDS, grace_seconds / 2) if knows else 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(leave_seconds)
            return
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            os.write(self._lifeline, b"t")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(grace_seconds - leave_seconds)

    def close(self) -> None:
        """Kill what is left of it."""
        os.close(self._lifeline)
        self._process.wait()
        if self.stdout is not None:
            self.stdout.close()


def open_fifo() -> tuple[int, int]:
    """Return the ends of a FIFO, to read from and to write to.

    Unlike a pipe's, its status has the time at which it was last written, by the clock of the temporary files. Where
    these cannot be a FIFO, as on some network file systems, it is a pipe.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "output")
        try:
            os.mkfifo(path)
        except OSError:
            return os.pipe()
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else it waits for who writes
        writing = os.open(path, os.O_WRONLY)
    os.set_blocking(reading, True)
    return reading, writing


def end_of(code: int) -> str:
    """Describe how the command ended: `exit code 3`, or `SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
