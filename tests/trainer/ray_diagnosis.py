"""What to print when something did not happen on a Ray cluster of this machine: Ray's logs and processes, in short."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

LINES = {"worker-*.err": 6, "raylet.out": 30, "raylet.err": 6, "paceline-fork-server.log": 6}
RECENT_SECONDS = 600.0
OF_RAY = ("ray::", "default_worker", "fork-server", "agent_process", "paceline")


def worker_lines(about: str) -> list[str]:
    """What slots and workers of all Ray sessions of this test run logged about it."""
    files = sorted(_logs("worker-*.err"))
    return [line for file in files for line in file.read_text(errors="replace").splitlines() if about in line]


def diagnosis(about: str) -> str:
    """The ends of the recent logs, the last lines of workers about it, and the processes that are Ray's or ours."""
    return "\n".join([*_ends_of_logs(), *_processes(), f"slots and workers on {about}:", *worker_lines(about)[-20:]])


def _ends_of_logs() -> Iterator[str]:
    for pattern, count in LINES.items():
        for file in sorted(_logs(pattern), key=lambda file: file.stat().st_mtime):
            lines = file.read_text(errors="replace").splitlines()
            if lines and file.stat().st_mtime > time.time() - RECENT_SECONDS:
                yield f"the end of {file.name}:"
                yield from (line[:300] for line in lines[-count:])


def _logs(pattern: str) -> Iterator[Path]:
    return Path(tempfile.gettempdir()).glob(f"ray/session_[0-9]*/logs/{pattern}")


def _processes() -> Iterator[str]:
    yield "processes (id, parent, age in seconds, CPU seconds, state, command):"
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                command, cpu = " ".join(process.cmdline()), process.cpu_times()
                age, seconds = time.time() - process.create_time(), cpu.user + cpu.system
                facts = f"{process.pid} {process.ppid()} {age:.0f} {seconds:.1f} {process.status()} {command[:80]}"
        except psutil.NoSuchProcess:
            continue
        if any(part in command for part in OF_RAY):
            yield facts
