"""The loop that keeps the pictures on an experiment's MLflow run: load, draw in a process of its own, send, note it."""

import contextlib
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

from service.mirror.backoff import Patience
from service.mirror.chart_builder import sketch_of
from service.mirror.chart_data import Sketch
from service.runtime import garbage_collection
from service.runtime.spec_cache import spec_of
from service.store import charts
from service.store.mirrors import try_charts_lock
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow

if TYPE_CHECKING:
    from service.mirror.tracking_client import Tracking

FOLDER = "pictures"
LONGEST_SECONDS = 180
LOOK_SECONDS = 0.2
MOST_TOLD = 2000
log = logging.getLogger(__name__)


class Picturing:
    """Draws an experiment anew when a trial of it has ended since, at most every `refresh` seconds, and at its end.

    What cannot be drawn or sent is tried again later, and nothing else waits for it. A kill in between repeats it: the
    pictures take the place of the older ones of the same names.
    """

    name = "picturing"
    is_behind = False

    def __init__(
        self,
        database: Database,
        tracking_uri: str,
        *,
        refresh: float,
        stopping: threading.Event,
        every: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self._database = database
        self._uri = tracking_uri
        self._refresh = timedelta(seconds=refresh)
        self._stopping = stopping
        self._patience = Patience(clock)
        self._tracking: Tracking | None = None

    def run_once(self) -> int:
        """One experiment of those that are due; 0 when none is. The others have their turn after it."""
        self.is_behind = False
        with try_charts_lock(self._database) as mine:
            if not mine:
                return 0
            with self._database.read() as session:
                due = charts.due(session, self._refresh)
            due = [experiment_id for experiment_id in due if not self._patience.waits(experiment_id)]
            drawn = any(self._try(experiment_id) for experiment_id in due)
        self.is_behind = drawn and len(due) > 1
        return int(drawn)

    def _try(self, experiment_id: str) -> bool:
        try:
            self._picture(experiment_id)
        except Exception as error:  # noqa: BLE001 - a picture less is not worth a loop that stands still
            self._patience.failed(experiment_id)
            log.warning("experiment %s has no new pictures: %s: %s", experiment_id, type(error).__name__, error)
            return False
        self._patience.succeeded(experiment_id)
        return True

    def _picture(self, experiment_id: str) -> None:
        with self._database.read() as session:
            experiment, mirror = session.get(ExperimentRow, experiment_id), session.get(MirrorRow, experiment_id)
            if experiment is None or mirror is None or mirror.parent_run_id is None:
                return
            seen, sketch = experiment.event_count, sketch_of(session, experiment, spec_of(experiment))
        tracking = self._connected()
        tracking.check_run(mirror.parent_run_id)  # before the work of drawing, not after it
        with tempfile.TemporaryDirectory(prefix="paceline-pictures-") as directory:
            if draw(sketch, Path(directory), self._stopping):
                tracking.put_files(mirror.parent_run_id, Path(directory), FOLDER)
            elif self._stopping.is_set():
                return
        with self._database.write() as session:
            charts.note(session, experiment_id, seen)

    def _connected(self) -> "Tracking":
        if self._tracking is None:
            with garbage_collection.frozen_afterwards():
                from service.mirror.tracking_client import Tracking  # noqa: PLC0415 - MLflow takes seconds to import

            self._tracking = Tracking(self._uri)
        return self._tracking


def draw(sketch: Sketch, directory: Path, stopping: threading.Event) -> bool:
    """Whether there are pictures in the directory now; without any when the service stops meanwhile.

    Raises RuntimeError when the drawing process fails, or takes too long.
    """
    with tempfile.TemporaryFile() as left_out, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "service.mirror.chart_process", str(directory)]
        with subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=left_out, stderr=errors
        ) as process:
            try:
                _send(process, sketch)
                _wait(process, stopping)
            finally:
                process.kill()
        if stopping.is_set():
            return False
        if process.returncode != 0:
            raise RuntimeError(f"drawing failed ({process.returncode}): {_end_of(errors)}")
        if said := _end_of(left_out):
            log.warning("some pictures could not be drawn: %s", said)
    return any(directory.iterdir())


def _end_of(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()[-MOST_TOLD:]


def _send(process: "subprocess.Popen[bytes]", sketch: Sketch) -> None:
    """One line; the input stays open, and the process ends by itself when we are gone."""
    assert process.stdin is not None  # noqa: S101 - it was opened as a pipe
    with contextlib.suppress(BrokenPipeError):  # it has died, which is looked at next
        process.stdin.write(sketch.model_dump_json().encode() + b"\n")
        process.stdin.flush()


def _wait(process: "subprocess.Popen[bytes]", stopping: threading.Event) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    while process.poll() is None and not stopping.wait(LOOK_SECONDS):
        if time.monotonic() > until:
            raise RuntimeError(f"drawing took more than {LONGEST_SECONDS} s")
