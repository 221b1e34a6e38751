"""A child process with its whole family: own session, output in a file, and nobody left when it is stopped."""

import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil


class Child:
    """`start` it again after it has died. Its output is appended to `log`.

    `command` is asked for at each start, because it may hold what only another child's start makes known.
    """

    def __init__(self, command: Callable[[], Sequence[str]], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._command = command
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """A session of its own keeps the terminal's Ctrl-C away from it: who stops it, and when, is decided here."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command(),
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or before it was started."""
        return self._process.poll() if self._process else None

    def stop(self, grace_seconds: float) -> None:
        """Ask it to leave, wait, then kill whatever remains of its family. Harmless when it has ended."""
        if self._process is None:
            return
        relatives = family(self._process.pid)
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
        self._process.kill()
        self._process.wait()
        kill([*relatives, *family(self._process.pid)])

    def kill(self) -> None:
        self.stop(grace_seconds=0)

    def tail(self, lines: int = 20) -> list[str]:
        """Return the last lines of its output."""
        with self.log.open(errors="replace") as output:
            return [line.rstrip("\n") for line in deque(output, lines)]


def family(leader: int) -> list[psutil.Process]:
    """Every living process of the leader's session, and its descendants that opened sessions of their own."""
    found = {process.pid: process for process in psutil.process_iter() if _session(process.pid) == leader}
    with contextlib.suppress(psutil.NoSuchProcess):
        found |= {process.pid: process for process in psutil.Process(leader).children(recursive=True)}
    return list(found.values())


def kill(processes: Sequence[psutil.Process], wait_seconds: float = 2) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=wait_seconds)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
