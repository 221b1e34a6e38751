"""The processes that a trial has started and left running. They may hold memory of a GPU, or a port."""

import contextlib
import time
from pathlib import Path

HARMLESS_PROGRAMS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "loky",
    "torch/_inductor/compile_worker",
    "torch_shm_manager",
)
"""Parts of the command lines of processes that libraries keep for their next call."""

PROCESSES_END_SECONDS = 1.0
"""How long processes that the trial has started may take to end."""

POLL_SECONDS = 0.01


def child_processes() -> frozenset[int]:
    """The process ids of this process's children, where the kernel lists them (proc_pid_task_children(5))."""
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
    """The command lines, cut, of children that are not known and not harmless. One that has ended has none."""
    lines = map(_command_line, sorted(child_processes() - known))
    return [line[:60] for line in lines if line and not any(program in line for program in HARMLESS_PROGRAMS)]


def _command_line(process: int) -> str:
    try:
        content = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()
