"""The loop that keeps the charts on each experiment's MLflow run up to date."""

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from service.mirror.backoff import MIN_SECONDS, Backoff
from service.mirror.charts.chart_data_loader import chart_data, load_chart_rows
from service.mirror.charts.renderer_process import Rendered, RendererFailed, render_charts
from service.mirror.mlflow_errors import MlflowPaused, MlflowRefused, MlflowRefusedFiles, MlflowUnavailable
from service.mirror.tracking_server.connection import TrackingConnection
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.runtime.caches.experiment_caches import spec_of
from service.store import charts
from service.store.mirrors import try_charts_lock
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow
from trainer.process_log.context import log_context

ARTIFACT_FOLDER = "pictures"
FOLDER_PREFIX = "paceline-pictures-"
"""Of the folder that the charts are rendered into."""
LONG_REST_SECONDS = 600.0
"""Drawing costs seconds of CPU time, and what fails, is refused or takes too long now will do so in a minute, too."""
SEE_LOG = "the service's log says more"

log = logging.getLogger(__name__)


class Charting:
    """Renders an experiment's charts after trials have ended, at most every `refresh` seconds, and when it ends.

    Charts that fail are tried again later, and logged once. Their error is shown with the experiment. After a crash the
    charts are rendered again; they replace the artifacts with the same names. An experiment of whose charts only some
    were finished in time rests for long, too.
    """

    name = "charting"
    is_behind = False

    def __init__(
        self,
        database: Database,
        tracking_uri: str,
        *,
        refresh: float,
        stopping: threading.Event,
        pause: RequestedPause | None = None,
        every: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self._database = database
        self._refresh = timedelta(seconds=refresh)
        self._stopping = stopping
        self._backoff, self._late = Backoff(clock), Backoff(clock)
        self._connection = TrackingConnection(tracking_uri, pause or RequestedPause(clock))

    def run_once(self) -> int:
        """Render the charts of one experiment that is due; return 0 when none is, or while MLflow asks for a pause."""
        self.is_behind = False
        try:
            self._connection.pause.check()
            return self._draw_one()
        except MlflowPaused:  # which the mirror shows; nothing has failed here
            return 0

    def _draw_one(self) -> int:
        with try_charts_lock(self._database) as lock:
            if not lock.held:
                return 0
            with self._database.read() as session:
                due = charts.outdated_experiments(session, self._refresh)
            due = [one for one in due if not (self._backoff.is_resting(one) or self._late.is_resting(one))]
            done = any(self._try(experiment_id) for experiment_id in due)
        self.is_behind = done and len(due) > 1
        return int(done)

    def _try(self, experiment_id: str) -> bool:
        with log_context.bound(experiment=experiment_id):
            return self._try_to_update(experiment_id)

    def _try_to_update(self, experiment_id: str) -> bool:
        with self._database.read() as session:
            drawn_at = charts.drawn_at(session, experiment_id)
        try:
            self._update_charts(experiment_id)
        except MlflowPaused:
            raise
        except Exception as error:  # noqa: BLE001 - failing charts must not stop the loop
            self._note_failure(experiment_id, error, drawn_at)
        else:
            self._backoff.succeeded(experiment_id)
            return True
        return False

    def _note_failure(self, experiment_id: str, error: Exception, drawn_at: datetime | None) -> None:
        """Log the first one. Store it unless the charts have been drawn since `drawn_at`."""
        at_least = LONG_REST_SECONDS if isinstance(error, MlflowRefusedFiles | RendererFailed) else MIN_SECONDS
        if self._backoff.failed(experiment_id, at_least):
            log.warning("the charts of experiment %s failed: %s: %s", experiment_id, type(error).__name__, error)
        with self._database.write() as session:
            charts.note_failed(session, experiment_id, _shown(error), drawn_at)

    def _update_charts(self, experiment_id: str) -> None:
        with self._database.read() as session:
            experiment, mirror = session.get(ExperimentRow, experiment_id), session.get(MirrorRow, experiment_id)
            if experiment is None or mirror is None or mirror.parent_run_id is None:
                return
            newest_event, rows = experiment.event_count, load_chart_rows(session, experiment, spec_of(experiment))
        tracking = self._connection.client
        tracking.check_run(mirror.parent_run_id)  # before rendering, which is expensive
        with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as directory:
            rendered = render_charts(chart_data(rows), Path(directory), self._stopping)
            if rendered is Rendered.SOME:
                self._late.failed(experiment_id, LONG_REST_SECONDS)
            if rendered is not Rendered.NONE:
                tracking.put_files(mirror.parent_run_id, Path(directory), ARTIFACT_FOLDER)
            elif self._stopping.is_set():
                return
        with self._database.write() as session:
            charts.note_drawn(session, experiment_id, newest_event, mirror.parent_run_id)


def _shown(error: Exception) -> str:
    """The text of an unexpected error could show secrets."""
    is_expected = isinstance(error, MlflowRefused | MlflowUnavailable)
    return str(error) if is_expected else f"the charts failed with {type(error).__name__}; {SEE_LOG}"
