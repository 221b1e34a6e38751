"""What to print when something did not happen on a Ray cluster of this machine: Ray's logs and processes."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

LINES = 40
OTHER_LOGS = ("worker-*.err", "raylet.out", "raylet.err", "paceline-fork-server.log")
RECENT_SECONDS = 600.0


def worker_lines(about: str) -> list[str]:
    """What slots and workers of all Ray sessions of this test run logged about it."""
    files = sorted(_logs("worker-*.err"))
    return [line for file in files for line in file.read_text(errors="replace").splitlines() if about in line]


def diagnosis(about: str) -> str:
    """Lines of workers about it, the ends of the recent logs of the sessions, and all processes."""
    return "\n".join([f"slots and workers on {about}:", *worker_lines(about)[-LINES:], *_other_logs(), *_processes()])


def _other_logs() -> Iterator[str]:
    for pattern in OTHER_LOGS:
        for file in sorted(_logs(pattern)):
            if file.stat().st_mtime > time.time() - RECENT_SECONDS:
                yield f"the end of {file.name}:"
                yield from file.read_text(errors="replace").splitlines()[-LINES:]


def _logs(pattern: str) -> Iterator[Path]:
    return Path(tempfile.gettempdir()).glob(f"ray/session_[0-9]*/logs/{pattern}")


def _processes() -> Iterator[str]:
    yield "processes (id, parent, age in seconds, CPU seconds, state, command):"
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                cpu, command = process.cpu_times(), " ".join(process.cmdline()) or process.name()
                age = time.time() - process.create_time()
                yield (
                    f"{process.pid} {process.ppid()} {age:.0f} {cpu.user + cpu.system:.1f} "
                    f"{process.status()} {command[:200]}"
                )
        except psutil.NoSuchProcess:
            continue
