"""A child process: its own session, its output in a file, and its descendants killed when it is stopped."""

import contextlib
import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from service.stack.process_tags import kill_tagged, new_tag, tag_environment

LOW_PRIORITY = 10
"""A niceness: beside a process that computes all the time, about a tenth of a processor."""

STARTING_PRIORITY = 5
"""A niceness: beside a process that computes all the time, about a quarter of a processor."""

KILL_SECONDS = 5
"""How long a killed process may take to end."""


class ChildProcess:
    """A process that can be started again after it has ended. Its output is appended to `log`.

    `command` is called at each start, because it may depend on values that only another child's start yields. Standard
    input is empty; with `lifeline` it is a pipe that closes when the child is stopped or this process ends.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        env: Mapping[str, str],
        log: Path,
        *,
        lifeline: bool = False,
    ) -> None:
        self.log = log
        self._command = command
        self.tag = new_tag(env)
        self._env = {**env, **tag_environment(self.tag)}
        self._stdin = subprocess.PIPE if lifeline else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C in the terminal reaches only this process.

        What is left of its last run is killed before. Raises OSError and Unkillable.
        """
        self.kill()
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command(),
                env=self._env,
                stdin=self._stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def set_priority(self, niceness: int) -> None:
        """Give the child and its descendants this niceness."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PGRP, self._process.pid, niceness)
            # Where Linux schedules by session (autogroups), a process's own niceness counts within its session only.
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(niceness))

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or before its first start."""
        return self._process.poll() if self._process else None

    def listens_on(self, port: int) -> bool:
        """Whether it, or a descendant, listens on the port. An answer there may come from another program."""
        if self._process is None:
            return False
        try:
            child = psutil.Process(self._process.pid)
            family = [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            return False
        return any(_listens_on(one, port) for one in family)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, wait, then kill it and all its descendants. Does nothing before the first start.

        Raises Unkillable.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it hangs in the kernel, and is Unkillable
            self._process.wait(KILL_SECONDS)
        if self._process.stdin:
            self._process.stdin.close()
        kill_tagged(self.tag)

    def kill(self) -> None:
        self.stop(grace_seconds=0)

    def tail(self, lines: int = 20) -> list[str]:
        """Return the last lines of its output; [] if they cannot be read."""
        try:
            with self.log.open(errors="replace") as output:
                return [line.rstrip("\n") for line in deque(output, lines)]
        except OSError:
            return []


def _listens_on(process: psutil.Process, port: int) -> bool:
    try:
        sockets = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # where the system hides the sockets, the answer at the port has to do
        return True
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)
