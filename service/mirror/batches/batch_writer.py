"""Writes a batch of events to MLflow, outside of a transaction: to the parent run, and to those of its trials."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from service.mirror.backoff import Backoff
from service.mirror.batches.event_batches import Batch
from service.mirror.batches.unsettled_batches import UnsettledBatches
from service.mirror.mlflow_errors import MlflowPaused, MlflowRefused, MlflowRunDeleted, MlflowUnavailable
from service.mirror.runs.new_runs import NewRun, experiment_run, trial_run
from service.mirror.runs.projection import Projection
from service.mirror.runs.run_update import RunUpdate
from service.mirror.runs.trial_run_update import unknown_trial
from service.mirror.runs.unanswered_creations import UnansweredCreations
from service.mirror.tracking_server.adaptive_size import AdaptiveSizes
from service.mirror.tracking_server.connection import TrackingConnection
from service.store import mirrors
from service.store.advisory_locks import AdvisoryLock
from service.store.sql.database import Database, database_now
from service.store.tables import ExperimentRow, MirrorRow, TrialRow

if TYPE_CHECKING:  # importing MLflow takes seconds
    from service.mirror.tracking_server.run_lookup import EnsuredRun

log = logging.getLogger(__name__)


class BatchWriter:
    """Writes batches under the lock of the mirror, and keeps which runs are deleted in MLflow.

    Writing a batch again changes nothing.
    """

    def __init__(
        self,
        database: Database,
        connection: TrackingConnection,
        *,
        sizes: AdaptiveSizes,
        unsettled: UnsettledBatches,
        unanswered: UnansweredCreations,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._connection = connection
        self._batch_sizes = sizes
        self._unsettled = unsettled
        self._unanswered = unanswered
        self._deleted_runs = Backoff(clock)

    def write(self, batch: Batch, projection: Projection, lock: AdvisoryLock) -> dict[tuple[str, int], str]:
        """Write a batch to MLflow; return the ids of the runs that it needed newly, by trial and generation.

        MLflow answers a write with `{}`, as other programs may. So the first and the last call is one that MLflow
        answers with an id: another program that has answered in between is noticed.
        """
        tracking, given = self._connection.client, batch.given
        mlflow_experiment_id, parent_run_id = self._ensure_parent(given.experiment, batch.mirror, lock)
        tracking.check_run(parent_run_id)
        # First: while it is deleted, alone or with the whole experiment, no trial's run may be left out of the batch,
        # which is written when it is restored.
        lock.check()
        self._unsettled.began(given.experiment.id, batch.after)
        try:
            tracking.write(parent_run_id, projection.parent)
            new_run_ids = self._write_runs(batch, projection, mlflow_experiment_id, parent_run_id, lock)
            tracking.check_run(parent_run_id)
        except MlflowPaused:
            raise
        except MlflowUnavailable:  # within the batch: a smaller one may get through
            self._batch_sizes.of(given.experiment.id).failed(len(batch.events))
            raise
        return new_run_ids

    def _write_runs(
        self, batch: Batch, projection: Projection, mlflow_experiment_id: str, parent_run_id: str, lock: AdvisoryLock
    ) -> dict[tuple[str, int], str]:
        given = batch.given
        new_run_ids: dict[tuple[str, int], str] = {}
        for key, update in projection.runs.items():
            run_id = batch.run_ids.get(key)
            if run_id is None:
                new = trial_run(given.experiment, given.trials[key.trial_id], parent_run_id, given.generation(key))
                run = self._ensure_run(given.experiment, mlflow_experiment_id, new, update.started_at, lock)
                run_id = new_run_ids[key] = run.run_id
                update = update.as_first(run.missing_params, run.changed_tags, is_new=run.is_new)  # noqa: PLW2901
            lock.check()
            self._write_unless_deleted(run_id, given.trials[key.trial_id], update)
        return new_run_ids

    def _write_unless_deleted(self, run_id: str, trial: TrialRow, update: RunUpdate) -> None:
        """Leave out a run that is deleted in MLflow, so that it does not hold up the others of its experiment.

        MLflow is asked about it again after a while, because it may have been restored.
        """
        if self._deleted_runs.is_resting(run_id):
            return
        try:
            self._connection.client.write(run_id, update)
        except MlflowRunDeleted as error:
            if self._deleted_runs.failed(run_id):
                log.warning("the run of trial %s is not mirrored: %s", trial.number, error)
        else:
            self._deleted_runs.succeeded(run_id)

    def _ensure_parent(
        self, experiment: ExperimentRow, mirror: MirrorRow | None, lock: AdvisoryLock
    ) -> tuple[str, str]:
        """Return the ids of MLflow's experiment and of the parent run, creating them for a new experiment."""
        if mirror and mirror.mlflow_experiment_id and mirror.parent_run_id:
            return mirror.mlflow_experiment_id, mirror.parent_run_id
        tracking = self._connection.client
        mlflow_experiment_id = tracking.ensure_experiment(experiment)
        new = experiment_run(experiment)
        parent = self._ensure_run(experiment, mlflow_experiment_id, new, experiment.created_at, lock)
        tracking.write(parent.run_id, RunUpdate(experiment.created_at, parent.missing_params))
        self._end_unknown_runs(mlflow_experiment_id)  # also below an earlier parent run
        tracking.check_run(parent.run_id)
        with self._database.write() as session:
            stored = mirrors.begin(session, experiment.id, mlflow_experiment_id, parent.run_id)
        return stored or (mlflow_experiment_id, parent.run_id)

    def _end_unknown_runs(self, mlflow_experiment_id: str) -> None:
        """End the runs of trials and generations that a restored database does not have: they would stay RUNNING."""
        unfinished = self._connection.client.unfinished_runs(mlflow_experiment_id)
        with self._database.read() as session:
            known = mirrors.run_keys_of(session, {key.trial_id for key in unfinished.values()})
        self._end_as_unknown([run_id for run_id, key in unfinished.items() if key not in known])

    def _end_as_unknown(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            with self._database.read() as session:
                now = database_now(session)
            for run_id in run_ids:
                self._connection.client.write(run_id, unknown_trial(now))

    def _ensure_run(
        self,
        experiment: ExperimentRow,
        mlflow_experiment_id: str,
        new: NewRun,
        started_at: datetime,
        lock: AdvisoryLock,
    ) -> "EnsuredRun":
        lock.check()
        try:
            run = self._connection.client.ensure_run(mlflow_experiment_id, new, started_at)
        except (MlflowUnavailable, MlflowRefused):  # which may be that of a repetition
            self._unanswered.add(experiment.id, mlflow_experiment_id, new)
            raise
        if run.is_unanswered:
            self._unanswered.add(experiment.id, mlflow_experiment_id, new)
        if run.is_new:
            self._unanswered.created(experiment.id, mlflow_experiment_id, new, run.run_id)
        self._end_as_unknown(run.unknown_run_ids)
        return run
