"""The loop that mirrors the event log to MLflow: load a batch, write it outside a transaction, advance the cursor."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from search.numbers_in_messages import counted
from service.background.loop import PartlyFailed
from service.mirror.backoff import Backoff
from service.mirror.batches.batch_writer import BatchWriter
from service.mirror.batches.event_batches import MAX_EVENTS, load_batch
from service.mirror.batches.known_results import KnownResults
from service.mirror.batches.unsettled_batches import UnsettledBatches
from service.mirror.mlflow_errors import (
    MlflowPaused,
    MlflowRefused,
    MlflowUnavailable,
    MlflowUnreachable,
)
from service.mirror.runs.projection import project
from service.mirror.runs.unanswered_creations import UnansweredCreations
from service.mirror.tracking_server.adaptive_size import AdaptiveSizes
from service.mirror.tracking_server.connection import TrackingConnection
from service.mirror.tracking_server.duplicate_run_deletion import DuplicateRuns
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.store import charts, mirrors
from service.store.advisory_locks import AdvisoryLock, LockLost
from service.store.sql.database import Database
from trainer.process_log.context import log_context

log = logging.getLogger(__name__)


class MirrorFailed(PartlyFailed):
    """The mirrors of some experiments fail, but MLflow is not away."""


class MirrorPaused(PartlyFailed, MlflowPaused):
    """MLflow has asked for a pause at some call: nothing has failed, and the mirror goes on soon after it."""


class Mirroring:
    """Writes new events to MLflow. While MLflow is unavailable the mirror lags, and nothing else waits for it.

    The cursor advances after MLflow has taken a batch. A crash in between repeats the batch, which changes nothing.

    Another service may mirror at the same time, if PostgreSQL has closed the connection with this one's lock. Then the
    first one to store a batch wins. The other one deletes the runs that it has created besides, and has the batch
    written again, since it may have overwritten something newer.
    """

    name = "mirroring"
    is_behind = False

    def __init__(
        self,
        database: Database,
        tracking_uri: str,
        *,
        pause: RequestedPause | None = None,
        draws_charts: bool = True,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self._database = database
        self._draws_charts = draws_charts
        self._backoff = Backoff(clock)
        self._batch_sizes = AdaptiveSizes(MAX_EVENTS)
        self._connection = TrackingConnection(tracking_uri, pause or RequestedPause(clock))
        self._unanswered = UnansweredCreations(clock)
        self._unsettled = UnsettledBatches(database)
        self._writer = BatchWriter(
            database,
            self._connection,
            sizes=self._batch_sizes,
            unsettled=self._unsettled,
            unanswered=self._unanswered,
            clock=clock,
        )
        self._duplicates = DuplicateRuns(database, clock)
        self._rewound: set[str] = set()
        self._lock = AdvisoryLock(None, held=False)
        self._known = KnownResults()
        self._failures: dict[str, str] = {}
        self._has_begun = False

    def run_once(self) -> int:
        """Mirror one batch of each experiment with new events; return the number of events.

        Raises MlflowUnavailable when MLflow fails before it has taken a batch, and MirrorPaused in a pause that it has
        asked for. An MlflowRefused concerns one experiment, and is stored with it. So is any other error; as long as
        experiments fail with one, this raises MirrorFailed after mirroring others.
        """
        self.is_behind = False
        self._rewound = self._unsettled.rewind_passed()
        with mirrors.try_mirror_lock(self._database) as self._lock:
            count = self._mirror_unless_paused() if self._lock.held else 0
            has_mirrored = self._lock.held
        with suppress(MlflowUnavailable):  # everything is mirrored, and the next pass looks again
            self._delete_late_runs()
        with suppress(MlflowUnavailable):
            self._delete_duplicates()
        if has_mirrored and self._failures:
            raise MirrorFailed(_described(self._failures))
        return count

    def _mirror_unless_paused(self) -> int:
        try:
            self._connection.pause.check()
            return self._mirror_all()
        except MlflowPaused as error:
            raise MirrorPaused(str(error)) from error

    def _mirror_all(self) -> int:
        self._begin()
        with self._database.read() as session:
            behind = mirrors.experiments_behind(session)
        self._failures = {key: failure for key, failure in self._failures.items() if key in behind}
        self._backoff.keep_only(behind)  # others were deleted
        self._batch_sizes.keep_only(behind)
        due = [one for one in behind if one not in self._rewound and not self._backoff.is_resting(one)]
        count = 0
        for experiment_id in due:
            try:
                count += self._try(experiment_id)
            except MlflowPaused:  # by an answer to another loop: nothing has failed here
                raise
            except MlflowUnavailable as error:
                if not count:
                    self._store_unavailable(experiment_id, error)
                    raise
                self._interrupt(experiment_id, error)
                break
        return count

    def _interrupt(self, experiment_id: str, error: MlflowUnavailable) -> None:
        """End a pass in which MLflow has taken batches: it is not away, so this experiment alone has the error.

        It rests. The others are mirrored in the next pass, and not in this one: each may take seconds to fail.
        """
        self._store_error(experiment_id, str(error))
        self._failures[experiment_id] = type(error).__name__
        if self._backoff.failed(experiment_id):
            log.info("experiment %s is not mirrored: %s", experiment_id, error)
        self.is_behind = True

    def _begin(self) -> None:
        """Once after the start, forget errors of charts that are not drawn, and what earlier versions stored wrongly.

        The latter is mirrored again.
        """
        if self._has_begun:
            return
        with self._database.write() as session:
            found = mirrors.without_ids(session)
            mirrors.remove(session, found)
            if not self._draws_charts:
                charts.clear_errors(session)
        if found:
            log.warning("MLflow lacks events of %s: mirroring them again", counted(len(found), "experiment"))
        self._duplicates.service_began()
        self._has_begun = True

    def _try(self, experiment_id: str) -> int:
        with log_context.bound(experiment=experiment_id):
            return self._try_to_mirror(experiment_id)

    def _try_to_mirror(self, experiment_id: str) -> int:
        try:
            count = self._mirror(experiment_id)
        except (LockLost, MlflowUnavailable):
            raise
        except MlflowRefused as error:
            self._store_error(experiment_id, str(error))
            if self._backoff.failed(experiment_id):
                log.warning("experiment %s is not mirrored: %s", experiment_id, error)
            count = 0
        except Exception as error:  # noqa: BLE001 - any error: the mirrors of the others must survive it
            self._note_failure(experiment_id, error)
            return 0
        else:
            self._backoff.succeeded(experiment_id)
        self._failures.pop(experiment_id, None)
        return count

    def _note_failure(self, experiment_id: str, error: Exception) -> None:
        """Raises if the database is away. The stored text has no message, which could show secrets."""
        kind = type(error).__name__
        self._store_error(experiment_id, f"the mirror failed with {kind}; the service's log says more")
        self._failures[experiment_id] = kind
        if self._backoff.failed(experiment_id):
            log.error("experiment %s is not mirrored", experiment_id, exc_info=error)

    def _mirror(self, experiment_id: str) -> int:
        with self._database.read() as session:
            batch = load_batch(session, experiment_id, self._known, self._batch_sizes.of(experiment_id).now)
        if batch is None:
            return 0
        projection = project(batch.given, batch.events)
        new_run_ids = self._writer.write(batch, projection, self._lock)
        with self._database.write() as session:
            has_advanced = mirrors.advance(session, experiment_id, batch.after, batch.cursor, new_run_ids)
        if not has_advanced:
            return 0
        self._batch_sizes.of(experiment_id).succeeded()
        self._unsettled.settled(experiment_id)
        self._unanswered.stored_runs(experiment_id, new_run_ids)
        self.is_behind |= not batch.is_last
        self._known.keep(experiment_id, batch.cursor, projection.best)
        if batch.is_last and batch.given.experiment.ended_at is not None:
            self._known.forget(experiment_id)
            self._duplicates.experiment_ended(experiment_id)
        return len(batch.events)

    def _delete_late_runs(self) -> None:
        """Delete what MLflow has created besides the runs that are stored."""
        self._note_stored_runs()
        for creation in self._unanswered.due():
            try:
                with suppress(MlflowRefused):
                    self._connection.client.delete_duplicates(
                        creation.mlflow_experiment_id, creation.new, str(creation.run_id), creation.made
                    )
            except MlflowUnavailable:  # perhaps for this one alone: then the others have their turn
                self._unanswered.postpone(creation)
                raise
            self._unanswered.looked(creation)

    def _delete_duplicates(self) -> None:
        with suppress(MlflowRefused):
            self._duplicates.delete_next(self._connection)

    def _note_stored_runs(self) -> None:
        """Note which runs are stored, by this service or by another one."""
        creations = self._unanswered.all()
        if not creations:
            return
        with self._database.read() as session:
            self._unanswered.keep_only(mirrors.existing(session, {one.experiment_id for one in creations}))
            creations = self._unanswered.all()
            trials = mirrors.runs_of(session, {one.run_key.trial_id for one in creations if one.run_key})
            rows = mirrors.mirrors_of(session, {one.experiment_id for one in creations})
        parents = {row.experiment_id: row.parent_run_id for row in rows.values()}
        for one in creations:
            run_id = trials.get(one.run_key) if one.run_key else parents.get(one.experiment_id)
            if run_id is not None:
                self._unanswered.stored(one.new, run_id)

    def _store_unavailable(self, experiment_id: str, error: MlflowUnavailable) -> None:
        """Store an outage with all experiments that wait, and another error with the one at which it was found.

        That one is the last of the next pass.
        """
        if not isinstance(error, MlflowUnreachable):
            self._store_error(experiment_id, str(error))
            return
        with self._database.write() as session:
            behind = [one for one in mirrors.experiments_behind(session) if not self._backoff.is_resting(one)]
            mirrors.fail_all(session, sorted(behind, key=lambda one: one == experiment_id), str(error))

    def _store_error(self, experiment_id: str, error: str) -> None:
        with self._database.write() as session:
            mirrors.fail(session, experiment_id, error)


def _described(failures: Mapping[str, str]) -> str:
    """`failures` are the kinds of errors by experiment."""
    kinds = ", ".join(sorted(set(failures.values())))
    what = f"the mirror of {counted(len(failures), 'experiment')} fails with {kinds}"
    return f"{what}; mlflow_error and the service's log say more"
