"""Which process an agent is: two of them must not work under one name, and a dead one is recognized immediately."""

import os
import socket
import uuid
from functools import cache
from pathlib import Path
from typing import Any

Instance = dict[str, Any]
"""As `trainer.wire.Instance`."""

DEAD_STATES = frozenset("ZX")


def instance_of(pid: int) -> Instance:
    """The process with this id on this machine."""
    try:
        started = _started(pid)
    except OSError:  # not Linux
        started = None
    return {"place": _pid_namespace(), "pid": pid, "started": started or 0}


def is_dead(instance: Instance) -> bool:
    """Whether it is known to be dead: it ran in this PID namespace, and no longer does."""
    if instance["place"] != _pid_namespace():
        return False
    try:
        return bool(_started(instance["pid"]) != instance["started"])
    except OSError:
        return _is_gone(instance["pid"])


def boot_id() -> str:
    """Names the machine's last start. Raises OSError where that is not Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _pid_namespace() -> str:
    """Where process ids mean the same: the machine since its last start, or a container on it."""
    try:
        return f"{socket.gethostname()} {boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: no process is known to be dead
        return f"{socket.gethostname()} {uuid.uuid4().hex}"


def _started(pid: int) -> int | None:
    """The process's start time in clock ticks; None for a zombie. Raises OSError for a process that is not visible."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The program's name, in parentheses, may contain anything.
    state, *numbers = stat.rpartition(")")[2].split()
    return None if state in DEAD_STATES else int(numbers[18])


def _is_gone(pid: int) -> bool:
    """/proc's option `hidepid` may hide other users' processes, but a signal reaches them."""
    try:
        os.kill(pid, 0)
    except OSError as refused:
        return isinstance(refused, ProcessLookupError)
    return False
