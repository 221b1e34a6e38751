"""Runs the chart renderer as a child process."""

import logging
import subprocess
import tempfile
import threading
import time
from enum import Enum, auto
from pathlib import Path
from typing import IO

from service.mirror.charts.chart_data import ChartData
from service.module_command import module_command

TIMEOUT_SECONDS = 180
POLL_SECONDS = 0.2
MAX_LOGGED_CHARACTERS = 2000
UNFINISHED_SUFFIX = ".unfinished"
"""Of the file that a chart is written into."""
log = logging.getLogger(__name__)


class RendererFailed(RuntimeError):
    """It will probably fail again, and its work costs seconds of CPU time."""


class Rendered(Enum):
    """Which charts are written."""

    NONE = auto()
    """there are none to draw, or the service stops"""
    ALL = auto()
    SOME = auto()
    """those that were finished after TIMEOUT_SECONDS: a further attempt would take as long"""


def render_charts(data: ChartData, directory: Path, stopping: threading.Event) -> Rendered:
    """Write the charts into the directory. Returns NONE early when `stopping` is set.

    Raises RendererFailed when the renderer fails, or finishes no chart in that time.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as skipped,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(data.model_dump_json().encode())
        given.seek(0)
        returncode = _run(given, directory, skipped, errors, stopping)
        if stopping.is_set():
            return Rendered.NONE
        if returncode:
            raise RendererFailed(f"the chart renderer ended with code {returncode}: {_end_of(errors)}")
        if text := _end_of(skipped):
            log.warning("some charts could not be rendered: %s", text)
    return _finished_only(directory, is_late=returncode is None)


def _run(
    given: IO[bytes], directory: Path, skipped: IO[bytes], errors: IO[bytes], stopping: threading.Event
) -> int | None:
    """Return the renderer's exit code; None when it was killed because of the time, or because of `stopping`.

    It gets the data as a file, because a pipe would block until it reads. Its standard input stays open: the renderer
    exits when that closes, so also when this process dies.
    """
    file = given.fileno()
    command = module_command("service.mirror.charts.renderer", str(file), str(directory))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=skipped, stderr=errors, pass_fds=[file]) as process:  # noqa: S603
        try:
            return _wait(process, stopping)
        finally:
            process.kill()


def _wait(process: "subprocess.Popen[bytes]", stopping: threading.Event) -> int | None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None:
        if stopping.wait(POLL_SECONDS) or time.monotonic() > deadline:
            return None
    return process.returncode


def _finished_only(directory: Path, *, is_late: bool) -> Rendered:
    """Remove the chart that was not finished."""
    for path in directory.glob(f"*{UNFINISHED_SUFFIX}"):
        path.unlink()
    charts = sorted(path.name for path in directory.iterdir())
    if not is_late:
        return Rendered.ALL if charts else Rendered.NONE
    late = f"the chart renderer took more than {TIMEOUT_SECONDS} s"
    if not charts:
        raise RendererFailed(late)
    log.warning("%s, and had finished only %s", late, ", ".join(charts))
    return Rendered.SOME


def _end_of(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()[-MAX_LOGGED_CHARACTERS:]
