"""The processes that a trial has started and left running. They may hold memory of a GPU, or a port."""

import contextlib
import os
import time
from pathlib import Path

HARMLESS_PROGRAMS = (
    "multiprocessing.resource_tracker",
    "loky.backend.resource_tracker",
    "torch/_inductor/compile_worker",
    "torch_shm_manager",
)
"""Parts of the command lines of processes that libraries keep for their next call."""

PROCESSES_END_SECONDS = 1.0
"""How long processes that the trial has started may take to end."""

POLL_SECONDS = 0.01

MAX_LINE = 120
"""The longest command line that is shown. An interpreter's path alone may take half of it."""


def started_processes() -> frozenset[int]:
    """The process ids of this process's children, and of all others in its process group if it leads that.

    A process whose parent has ended, such as one that a shell has left in the background, is no child of this one, but
    in its group. Ray's workers lead theirs; in another one there may be other programs.
    """
    own = os.getpid()
    return _children() | (_group_of(own) - {own} if os.getpgrp() == own else frozenset())


def _group_of(leader: int) -> frozenset[int]:
    found = []
    for process in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - of thousands, it takes less
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process) == leader:
                found.append(process)
    return frozenset(found)


def _children() -> frozenset[int]:
    """Where the kernel lists them (proc_pid_task_children(5))."""
    found: list[str] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has ended
            found += path.read_text().split()
    return frozenset(map(int, found))


def why_processes_are_left(known: frozenset[int]) -> str | None:
    deadline = time.monotonic() + PROCESSES_END_SECONDS
    while (left := _left(known)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return f"the training function left processes running: {', '.join(left)}" if left else None


def _left(known: frozenset[int]) -> list[str]:
    """The command lines, cut, of processes that are not known and not harmless."""
    lines = [_command_line(one) for one in sorted(started_processes() - known) if _runs(one)]
    return [line[:MAX_LINE] for line in lines if not any(program in line for program in HARMLESS_PROGRAMS)]


def _runs(process: int) -> bool:
    """A zombie has ended, and only its exit code is left, until its parent reads that."""
    return _read(f"/proc/{process}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def _command_line(process: int) -> str:
    """The command line, or the name of a process that has just begun, whose command line is empty."""
    return (_read(f"/proc/{process}/cmdline") or _read(f"/proc/{process}/comm")).replace("\0", " ").strip()


def _read(path: str) -> str:
    """Empty if the process is gone."""
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""
