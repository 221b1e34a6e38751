"""Which process an agent is, so that no two of them work under one name, and a dead one is known for dead at once."""

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
    """The process of this number here."""
    try:
        started = _started(pid)
    except OSError:  # not Linux
        started = None
    return {"place": _place(), "pid": pid, "started": started or 0}


def is_dead(instance: Instance) -> bool:
    """Whether it is known to be: it ran where this process would see it, and doesn't any more."""
    if instance["place"] != _place():
        return False
    try:
        return bool(_started(instance["pid"]) != instance["started"])
    except OSError:
        return _is_gone(instance["pid"])


def boot() -> str:
    """Names the machine's last start. Raises OSError where that is not Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _place() -> str:
    """Where processes see one another: the machine since its last start, or a container on it."""
    try:
        return f"{socket.gethostname()} {boot()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: nobody is known to be dead
        return f"{socket.gethostname()} {uuid.uuid4().hex}"


def _started(pid: int) -> int | None:
    """When, in the ticks of the machine's clock; None for a zombie. Raises OSError for a process that is not seen."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name of the program, in parentheses, may hold anything.
    state, *numbers = stat.rpartition(")")[2].split()
    return None if state in DEAD_STATES else int(numbers[18])


def _is_gone(pid: int) -> bool:
    """Other users' processes may be hidden, by /proc's option `hidepid`, but not from signals."""
    try:
        os.kill(pid, 0)
    except OSError as refused:
        return isinstance(refused, ProcessLookupError)
    return False
