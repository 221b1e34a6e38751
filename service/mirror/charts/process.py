"""Runs the chart renderer as a child process."""

import contextlib
import logging
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from service.mirror.charts.data import ChartData
from service.module_command import module_command

TIMEOUT_SECONDS = 180
POLL_SECONDS = 0.2
MAX_LOGGED_CHARACTERS = 2000
log = logging.getLogger(__name__)


def render_charts(data: ChartData, directory: Path, stopping: threading.Event) -> bool:
    """Write the charts into the directory; return whether there are any. Returns False early when `stopping` is set.

    Raises RuntimeError when the renderer fails, or takes longer than TIMEOUT_SECONDS.
    """
    with tempfile.TemporaryFile() as skipped, tempfile.TemporaryFile() as errors:
        command = module_command("service.mirror.charts.renderer", str(directory))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=skipped, stderr=errors) as process:  # noqa: S603
            try:
                _send(process, data)
                _wait(process, stopping)
            finally:
                process.kill()
        if stopping.is_set():
            return False
        if process.returncode != 0:
            raise RuntimeError(f"the chart renderer ended with code {process.returncode}: {_end_of(errors)}")
        if text := _end_of(skipped):
            log.warning("some charts could not be rendered: %s", text)
    return any(directory.iterdir())


def _send(process: "subprocess.Popen[bytes]", data: ChartData) -> None:
    """Send one line. The pipe stays open: the renderer exits when it closes, so also when this process dies."""
    assert process.stdin is not None  # noqa: S101 - it was opened as a pipe
    with contextlib.suppress(BrokenPipeError):  # the renderer has died; its exit code is checked later
        process.stdin.write(data.model_dump_json().encode() + b"\n")
        process.stdin.flush()


def _wait(process: "subprocess.Popen[bytes]", stopping: threading.Event) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None and not stopping.wait(POLL_SECONDS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the chart renderer took more than {TIMEOUT_SECONDS} s")


def _end_of(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()[-MAX_LOGGED_CHARACTERS:]
