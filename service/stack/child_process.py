"""A child process with its whole family: own session, output in a file, and nobody left when it is stopped."""

import contextlib
import os
import random
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from service.stack.process_tags import bearing, end_marked, new_mark

GIVING_WAY = 10
"""A niceness: a tenth of a processor beside one that computes all the time, and whatever else is left."""

PORTS = range(20_000, 32_768)
"""Below those that systems lend to outgoing connections, so that none is lent while its server starts again."""


class Child:
    """`start` it again after it has died. Its output is appended to `log`.

    `command` is asked for at each start, because it may hold what only another child's start makes known. Input ends at
    once, except with `lifeline`: then when it is stopped, or when this process is gone.
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
        self._mark = new_mark(env)
        self._env = {**env, **bearing(self._mark)}
        self._stdin = subprocess.PIPE if lifeline else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """A session of its own keeps the terminal's Ctrl-C away from it: who stops it, and when, is decided here."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command(),
                env=self._env,
                stdin=self._stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def give_way(self) -> None:
        """From now on it, and what it has started, leaves most of the processor to others that want it."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PGRP, self._process.pid, GIVING_WAY)
            # Where Linux shares processors among sessions, a process's own priority counts within its session alone.
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(GIVING_WAY))

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or before it was started."""
        return self._process.poll() if self._process else None

    def stop(self, grace_seconds: float) -> None:
        """Ask it to leave, wait, then kill whatever remains of its family. Harmless when it has ended."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        end_marked(self._mark)

    def kill(self) -> None:
        self.stop(grace_seconds=0)

    def tail(self, lines: int = 20) -> list[str]:
        """Return the last lines of its output."""
        with self.log.open(errors="replace") as output:
            return [line.rstrip("\n") for line in deque(output, lines)]


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
    """A port that stays free while nobody asks for it by number."""
    ports = random.sample(PORTS, len(PORTS))
    return next(port for port in ports if is_free(host, port))


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
