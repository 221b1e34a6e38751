"""Processes that tests watch and kill. Each may end at any moment, and stays a zombie until its parent waits for it."""

import contextlib
import time
from collections.abc import Iterable

import psutil

Process = psutil.Process | int
"""A process, or its id."""

ENDED = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


def is_alive(process: Process) -> bool:
    """False for a zombie: it has ended, and in a container its new parent may never wait for it."""
    try:
        found = _of(process)
        return found.is_running() and found.status() not in ENDED
    except psutil.NoSuchProcess:
        return False


def command_line(process: Process) -> list[str]:
    """Empty for a process that has ended."""
    try:
        return list(_of(process).cmdline())
    except psutil.NoSuchProcess:
        return []


def is_fork_server(process: Process) -> bool:
    """Whether its children are forked worker processes of Ray (see `trainer.ray_train.processes.fork_server`)."""
    return "--fork-server" in command_line(process)


def family_of(process: Process) -> list[psutil.Process]:
    """The process and its descendants; [] when it has ended."""
    try:
        found = _of(process)
        return [found, *found.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: Iterable[Process]) -> None:
    """Processes that have ended already are left out."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            _of(process).kill()


def left_alive(processes: Iterable[Process], seconds: float = 60) -> list[Process]:
    """Wait until all have ended; returns those that have not after so many seconds."""
    deadline, left = time.monotonic() + seconds, list(processes)
    while (left := [one for one in left if is_alive(one)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _of(process: Process) -> psutil.Process:
    return psutil.Process(process) if isinstance(process, int) else process
