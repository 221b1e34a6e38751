"""Writes to an MLflow tracking server. It uses MlflowClient only, never MLflow's global state (the active run)."""

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import requests
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException, RestException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from search.numbers_in_messages import counted
from service.mirror.adaptive_size import AdaptiveSize
from service.mirror.found_runs import (
    fitting,
    is_own,
    is_to_be_ended,
    is_untouched,
    new_parent,
    run_key,
    written_to_first,
)
from service.mirror.mlflow_errors import (
    MlflowRefused,
    MlflowRefusedFiles,
    MlflowRunDeleted,
    MlflowRunGone,
    MlflowUnavailable,
    MlflowUnreachable,
)
from service.mirror.mlflow_limits import (
    EXPERIMENT_NAME_LENGTH,
    FEWEST_METRICS_PER_CALL,
    METRICS_PER_CALL,
    PARAMS_PER_CALL,
    TAGS_PER_CALL,
    WRITES_BEFORE_LARGER_CALLS,
    text,
)
from service.mirror.new_runs import EXPERIMENT_TAG, TRIAL_TAG, NewRun, experiment_tags
from service.mirror.projection import RunKey
from service.mirror.refused_uploads import LARGER_BODIES, is_refused_upload, why_refused
from service.mirror.repeated_calls import (
    CallTookTooLong,
    causes,
    find_or_create,
    is_away,
    is_refusal,
    is_too_large,
    repeated,
    retry_after,
)
from service.mirror.requested_pause import RequestedPause
from service.mirror.retry_after import note_retry_after
from service.mirror.run_update import RunUpdate
from service.settings import without_credentials
from service.store.tables import ExperimentRow

# A dead server must cost seconds, not minutes. No retries inside the client, which would create a run twice when an
# answer is lost: before a creation is repeated, `find_or_create` looks for what exists.
_CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MESSAGE_LENGTH, _READ_LENGTH = 400, 4000
"""Of MLflow's messages, in characters: shown, and searched for credentials."""
ADVICE = "is PACELINE_MLFLOW_URI right, or is a proxy in between?"
MIRROR_AGAIN = "`paceline db mirror-again` has the service write everything again"
log = logging.getLogger(__name__)
_NOT_FOUND = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)


class EnsuredRun(NamedTuple):
    """`is_new`: this call created it. `missing_params`: those to be written. MLflow refuses to change the others.

    `changed_tags`: those that a run which was found is to get, as below a new parent run. `unknown_run_ids`: other
    runs of the trial, which contradict it and are to be ended. `is_unanswered`: a creation has failed before, which
    MLflow may still execute.
    """

    run_id: str
    is_new: bool
    missing_params: Mapping[str, str]
    changed_tags: Mapping[str, str] = MappingProxyType({})
    unknown_run_ids: Sequence[str] = ()
    is_unanswered: bool = False


class NamedExperiment(NamedTuple):
    """MLflow's experiment of a name. `is_usable`: it is Paceline's, and not deleted."""

    mlflow_id: str
    is_usable: bool


class TrackingClient:
    """A tracking server. Every method is idempotent, so it may be repeated after any failure.

    Every method raises MlflowUnavailable or MlflowRefused.
    """

    def __init__(self, uri: str, pause: RequestedPause | None = None) -> None:
        for name, value in _CLIENT_SETTINGS.items():
            os.environ.setdefault(name, value)
        note_retry_after()
        self.uri = uri
        self._pause = pause or RequestedPause()
        self._client = MlflowClient(tracking_uri=uri)
        self._metrics_per_call = AdaptiveSize(
            METRICS_PER_CALL, least=FEWEST_METRICS_PER_CALL, successes_to_grow=WRITES_BEFORE_LARGER_CALLS
        )

    def ensure_experiment(self, experiment: ExperimentRow) -> str:
        """Return the id of MLflow's experiment, creating it if needed.

        When the name belongs to another experiment or to a deleted one, the name gets Paceline's id as a suffix.
        """
        tags = experiment_tags(experiment)
        suffix = f" ({experiment.id})"
        plain = experiment.name[: EXPERIMENT_NAME_LENGTH - len(suffix)]
        with self._translated_errors():
            for name in (plain, plain + suffix):
                find = partial(self._find_experiment, name, experiment.id)
                ensured, _ = find_or_create(find, partial(self._create_experiment, name, tags))
                if ensured.is_usable:
                    return ensured.mlflow_id
        raise MlflowRefused(
            f"the names {plain!r} and {plain + suffix!r} are taken in MLflow. "
            "A deleted MLflow experiment keeps its name until `mlflow gc` removes it"
        )

    def ensure_run(self, mlflow_experiment_id: str, new: NewRun, started_at: datetime) -> EnsuredRun:
        """Return Paceline's run with `new`'s key, creating it if needed. `write` adds its parameters.

        Of several runs, which MLflow has if it created one after the client had stopped waiting, the unused ones are
        deleted.
        """
        with self._translated_errors():
            unknown: list[str] = []
            find = partial(self._find_run, mlflow_experiment_id, new, unknown)
            ensured, has_failed = find_or_create(find, partial(self._create_run, mlflow_experiment_id, new, started_at))
        return ensured._replace(unknown_run_ids=unknown, is_unanswered=has_failed)

    def delete_duplicates(
        self, mlflow_experiment_id: str, new: NewRun, run_id: str, surplus: Collection[str] = ()
    ) -> None:
        """Delete Paceline's runs with `new`'s key that are unused or `surplus`, unless the run to keep is deleted."""
        with self._translated_errors():
            found = self._own_runs(mlflow_experiment_id, new)
            if any(run.info.run_id == run_id for run in found):
                self._delete_unused(found, new, run_id, surplus)

    def unfinished_runs(self, mlflow_experiment_id: str) -> dict[str, RunKey]:
        """Return the trials' runs that Paceline has created and that have not ended, below whatever parent run.

        The MLflow experiment is of one experiment of Paceline, whose id it has as a tag.
        """
        found: dict[str, RunKey] = {}
        for status in ("RUNNING", "SCHEDULED"):
            wanted = f"attributes.status = '{status}' and tags.`{TRIAL_TAG}` LIKE '%'"
            with self._translated_errors():
                for run in self._all_runs(mlflow_experiment_id, wanted):
                    key = run_key(run)
                    if key is not None:
                        found[str(run.info.run_id)] = key
        return found

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
            run = repeated(self._client.get_run, run_id)
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
                repeated(store.log_artifact, str(file), str(artifact.parent))
        except OSError as error:
            if is_refused_upload(error):
                return without_credentials(f"{artifact} {why_refused(size, error)}")
            if isinstance(error, requests.RequestException):
                raise MlflowUnavailable(f"{artifact} cannot be uploaded: {_excerpt(str(error))}") from error
            raise
        return None

    def _write(self, run_id: str, update: RunUpdate) -> None:
        with self._translated_errors():
            self._log(run_id, update)
            if update.ended_at is not None:
                repeated(self._client.set_terminated, run_id, update.status, _milliseconds(update.ended_at))
            elif update.status is not None:
                repeated(self._client.update_run, run_id, status=update.status)

    def _log(self, run_id: str, update: RunUpdate) -> None:
        """After a call of many metrics has taken too long, the next calls have fewer."""
        metrics = [Metric(point.metric, point.value, _milliseconds(point.at), point.step) for point in update.metrics]
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
            repeated(self._client.log_batch, run_id, metrics=metrics, params=params, tags=tags)
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
                run = repeated(self._client.get_run, run_id)
            except RestException as error:
                if error.error_code != _NOT_FOUND:
                    raise
                raise MlflowRunGone(f"MLflow has no run {run_id}; {MIRROR_AGAIN}") from refusal
        if run.info.lifecycle_stage == LifecycleStage.DELETED:
            raise MlflowRunDeleted(f"MLflow refused: the run {run_id} is deleted") from refusal

    def _own_runs(self, mlflow_experiment_id: str, new: NewRun, *, with_deleted: bool = False) -> list[Run]:
        """Search by the key's tags that the run has; MLflow cannot search for runs without a tag."""
        wanted = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in new.key.items() if value is not None)
        view = ViewType.ALL if with_deleted else ViewType.ACTIVE_ONLY
        return [run for run in self._all_runs(mlflow_experiment_id, wanted, view) if is_own(run, new)]

    def _all_runs(self, mlflow_experiment_id: str, wanted: str, view: int = ViewType.ACTIVE_ONLY) -> Iterator[Run]:
        token = None
        while True:
            page = repeated(self._client.search_runs, [mlflow_experiment_id], wanted, view, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _delete_unused(self, runs: Sequence[Run], new: NewRun, kept_run_id: str, surplus: Collection[str] = ()) -> None:
        for run in runs:
            is_unused = run.info.run_id in surplus or is_untouched(run, new)
            if run.info.run_id != kept_run_id and is_unused:
                log.info("deleting run %s of MLflow, which was created besides %s", run.info.run_id, kept_run_id)
                repeated(self._client.delete_run, run.info.run_id)

    def _find_experiment(self, name: str, experiment_id: str) -> NamedExperiment | None:
        found = repeated(self._client.get_experiment_by_name, name)
        if found is None:
            return None
        is_own = found.tags.get(EXPERIMENT_TAG) == experiment_id
        return NamedExperiment(self._id(found.experiment_id), is_own and found.lifecycle_stage == LifecycleStage.ACTIVE)

    def _create_experiment(self, name: str, tags: Mapping[str, str]) -> NamedExperiment:
        return NamedExperiment(self._id(self._client.create_experiment(name, tags=tags)), is_usable=True)

    def _find_run(self, mlflow_experiment_id: str, new: NewRun, unknown: list[str]) -> EnsuredRun | None:
        """Add the ids of runs that are to be ended to `unknown`."""
        own = self._own_runs(mlflow_experiment_id, new, with_deleted=TRIAL_TAG in new.key)
        unknown[:] = [str(run.info.run_id) for run in own if is_to_be_ended(run, new)]
        found = fitting(own, new)
        if not found:
            return None
        kept = min(found, key=written_to_first)
        self._delete_unused(found, new, kept.info.run_id)
        missing = {name: value for name, value in new.params.items() if name not in kept.data.params}
        return EnsuredRun(str(kept.info.run_id), False, missing, new_parent(kept, new))

    def _create_run(self, mlflow_experiment_id: str, new: NewRun, started_at: datetime) -> EnsuredRun:
        began = _milliseconds(started_at)
        made = self._client.create_run(mlflow_experiment_id, began, tags=new.created_tags, run_name=new.name)
        return EnsuredRun(self._id(made.info.run_id), True, new.params)

    def _id(self, answered: Any) -> str:
        """MLflow's client takes an empty answer, or `{}`, of whatever program for one of MLflow."""
        if not answered:
            raise self._foreign_answer()
        return str(answered)

    def _foreign_answer(self) -> MlflowUnavailable:
        where = without_credentials(self.uri)
        return MlflowUnavailable(f"{where} answered without an id, as MLflow never does; {ADVICE}")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        self._pause.check()
        try:
            yield
        except MlflowException as error:
            message = _excerpt(error.message)
            error.args = (message,)  # in tracebacks
            if is_refusal(error):
                raise MlflowRefused(f"MLflow refused: {message}") from error
            asked = retry_after(error)
            if asked is not None:
                self._pause.begin(asked)
            raise _unavailable(without_credentials(self.uri), message, error) from error


def _excerpt(message: str) -> str:
    """One line, without credentials. MLflow's client quotes a foreign answer: its status, and then its whole body."""
    return text(" ".join(without_credentials(message[:_READ_LENGTH]).split()), _MESSAGE_LENGTH)


def _unavailable(uri: str, message: str, error: MlflowException) -> MlflowUnavailable:
    """An error of one line. MLflow's own message about an absent server has five, full of its libraries' objects."""
    reasons = (cause.strerror for cause in causes(error) if isinstance(cause, OSError))
    reason = next((one for one in reasons if isinstance(one, str) and one), None)  # of requests, it may be any object
    if is_away(error):
        why = reason or "no connection in time"
        return MlflowUnreachable(f"MLflow is not reachable at {uri}: {why.lower()}; the mirror goes on when it is")
    asked = retry_after(error)
    if asked:
        return MlflowUnavailable(f"MLflow at {uri} asks for a pause of {asked:.0f} s (Retry-After)")
    if is_too_large(error):
        return MlflowUnavailable(f"a proxy before MLflow at {uri} takes no body of this size (413): {LARGER_BODIES}")
    if reason is None:
        return MlflowUnavailable(f"MLflow at {uri} cannot be used: {message}")
    return MlflowUnavailable(f"MLflow does not answer at {uri}: {reason.lower()}; the mirror goes on when it does")


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
