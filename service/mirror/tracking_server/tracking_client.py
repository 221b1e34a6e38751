"""Writes to an MLflow tracking server. It uses MlflowClient only, never MLflow's global state (the active run)."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

import requests
from mlflow.entities import LifecycleStage, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException, RestException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from search.numbers_in_messages import counted
from service.mirror.mlflow_errors import (
    MlflowRefused,
    MlflowRefusedFiles,
    MlflowRunDeleted,
    MlflowRunGone,
    MlflowUnavailable,
)
from service.mirror.mlflow_limits import (
    FEWEST_METRICS_PER_CALL,
    METRICS_PER_CALL,
    PARAMS_PER_CALL,
    TAGS_PER_CALL,
    WRITES_BEFORE_LARGER_CALLS,
)
from service.mirror.runs.run_update import RunUpdate, milliseconds
from service.mirror.tracking_server.adaptive_size import AdaptiveSize
from service.mirror.tracking_server.call_retries import CallTookTooLong, is_too_large, retried
from service.mirror.tracking_server.error_translation import excerpt
from service.mirror.tracking_server.experiment_lookup import ExperimentLookup
from service.mirror.tracking_server.refused_uploads import is_refused_upload, why_refused
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.mirror.tracking_server.run_lookup import RunLookup
from service.settings import without_credentials

MIRROR_AGAIN = "`paceline db mirror-again` has the service write everything again"
_NOT_FOUND = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)


class TrackingClient(ExperimentLookup, RunLookup):
    """A tracking server. Every method is idempotent, so it may be repeated after any failure."""

    def __init__(self, uri: str, pause: RequestedPause | None = None) -> None:
        super().__init__(uri, pause)
        self._metrics_per_call = AdaptiveSize(
            METRICS_PER_CALL, least=FEWEST_METRICS_PER_CALL, successes_to_grow=WRITES_BEFORE_LARGER_CALLS
        )

    def write(self, run_id: str, update: RunUpdate) -> None:
        """Raises MlflowRunDeleted and MlflowRunGone, too."""
        try:
            self._write(run_id, update)
        except MlflowRefused as error:
            self._check_not_deleted(run_id, error)
            raise

    def check_run(self, run_id: str) -> None:
        """Raise unless MLflow answers with the run: a cheap call before expensive work, and after writes.

        Raises MlflowRunGone, too.
        """
        try:
            self._run(run_id)
        except MlflowRefused as refusal:
            self._check_not_deleted(run_id, refusal)
            raise

    def _run(self, run_id: str) -> Run:
        with self._translated_errors():
            run = retried(self._client.get_run, run_id)
        if run.info.run_id != run_id:
            raise self._foreign_answer()
        return run

    def put_files(self, run_id: str, directory: Path, folder: str) -> None:
        """Upload all files of the directory as artifacts of the run, replacing those with the same names.

        Raises MlflowRefusedFiles after the others, if some are refused, and OSError for a fault of this host.
        """
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        store = self._artifact_store(run_id)
        tried = [self._try_to_put(store, file, PurePosixPath(folder, file.relative_to(directory))) for file in files]
        refusals = [refusal for refusal in tried if refusal is not None]
        if refusals:
            others = f"; {counted(len(refusals) - 1, 'other file')} refused, too" if len(refusals) > 1 else ""
            raise MlflowRefusedFiles(f"{refusals[0]}{others}")

    def _artifact_store(self, run_id: str) -> ArtifactRepository:
        """MLflow's own client would take an answer without the address for a folder of this host, and remember it."""
        address = self._run(run_id).info.artifact_uri
        if not address:
            raise self._foreign_answer()
        with self._translated_errors():
            return get_artifact_repository(address, tracking_uri=self._client.tracking_uri)

    def _try_to_put(self, store: ArtifactRepository, file: Path, artifact: PurePosixPath) -> str | None:
        """Return why the file is refused, or None."""
        size = file.stat().st_size
        try:
            with self._translated_errors():
                retried(store.log_artifact, str(file), str(artifact.parent))
        except OSError as error:
            if is_refused_upload(error):
                return without_credentials(f"{artifact} {why_refused(size, error)}")
            if isinstance(error, requests.RequestException):
                raise MlflowUnavailable(f"{artifact} cannot be uploaded: {excerpt(str(error))}") from error
            raise
        return None

    def _write(self, run_id: str, update: RunUpdate) -> None:
        with self._translated_errors():
            self._log(run_id, update)
            if update.ended_at is not None:
                retried(self._client.set_terminated, run_id, update.status, milliseconds(update.ended_at))
            elif update.status is not None:
                retried(self._client.update_run, run_id, status=update.status)

    def _log(self, run_id: str, update: RunUpdate) -> None:
        """After a call of many metrics has taken too long, the next calls have fewer."""
        metrics = [Metric(point.metric, point.value, milliseconds(point.at), point.step) for point in update.metrics]
        params = [Param(name, value) for name, value in update.params.items()]
        tags = [RunTag(name, value) for name, value in update.tags.items()]
        pieces = (
            _chunks(metrics, self._metrics_per_call.now),
            _chunks(params, PARAMS_PER_CALL),
            _chunks(tags, TAGS_PER_CALL),
        )
        for some_metrics, some_params, some_tags in zip_longest(*pieces, fillvalue=()):
            try:
                self._log_items(run_id, [*some_metrics, *some_params, *some_tags])
            except CallTookTooLong:
                if len(some_metrics) > FEWEST_METRICS_PER_CALL:
                    self._metrics_per_call.failed(len(some_metrics))
                raise
        if len(metrics) >= self._metrics_per_call.now:
            self._metrics_per_call.succeeded()

    def _log_items(self, run_id: str, items: Sequence[Metric | Param | RunTag]) -> None:
        """In one call, or in two if a proxy takes no body of this size, and so on."""
        self._pause.check()
        metrics, params, tags = ([one for one in items if isinstance(one, kind)] for kind in (Metric, Param, RunTag))
        try:
            retried(self._client.log_batch, run_id, metrics=metrics, params=params, tags=tags)
        except MlflowException as error:
            if not is_too_large(error) or len(items) == 1:
                raise
        else:
            return
        # Not in the handler, where the 413 would be a cause of each later failure.
        for some in _chunks(items, -(-len(items) // 2)):
            self._log_items(run_id, some)

    def _check_not_deleted(self, run_id: str, refusal: MlflowRefused) -> None:
        """MLflow's refusal says it by the text alone."""
        with self._translated_errors():
            try:
                run = retried(self._client.get_run, run_id)
            except RestException as error:
                if error.error_code != _NOT_FOUND:
                    raise
                raise MlflowRunGone(f"MLflow has no run {run_id}; {MIRROR_AGAIN}") from refusal
        if run.info.lifecycle_stage == LifecycleStage.DELETED:
            raise MlflowRunDeleted(f"MLflow refused: the run {run_id} is deleted") from refusal


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
