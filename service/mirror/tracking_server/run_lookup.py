"""MLflow's runs, found by their tags, and created if there is none."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException

from service.mirror.runs.new_runs import TRIAL_TAG, NewRun
from service.mirror.runs.own_runs import (
    fitting,
    is_own,
    is_to_be_ended,
    is_untouched,
    new_parent,
    run_key,
    written_to_first,
)
from service.mirror.runs.projection import RunKey
from service.mirror.runs.run_update import milliseconds
from service.mirror.tracking_server.call_retries import ForeignAnswer, find_or_create, is_refusal, retried
from service.mirror.tracking_server.error_translation import ADVICE, TrackingCalls
from service.mirror.tracking_server.requested_pause import RequestedPause

log = logging.getLogger(__name__)


class EnsuredRun(NamedTuple):
    """`is_new`: this call created it. `missing_params`: those to be written. MLflow refuses to change the others.

    `changed_tags`: those that a run which was found is to get, as below a new parent run. `unknown_run_ids`: other
    runs of the trial, which contradict it and are to be ended. `is_unanswered`: MLflow may execute a further creation
    later, because one has failed, or because earlier runs were found only after this call had created one.
    """

    run_id: str
    is_new: bool
    missing_params: Mapping[str, str]
    changed_tags: Mapping[str, str] = MappingProxyType({})
    unknown_run_ids: Sequence[str] = ()
    is_unanswered: bool = False


class _CreatedRun(NamedTuple):
    mlflow_experiment_id: str
    run_id: str


class RunLookup(TrackingCalls):
    """Every method is idempotent.

    A search without a result is not believed alone: another program, such as a proxy, may answer it with `{}`, as
    MLflow does. MLflow must find each run that it has created.
    """

    def __init__(self, uri: str, pause: RequestedPause | None = None) -> None:
        super().__init__(uri, pause)
        self._not_found: _CreatedRun | None = None
        """A run that MLflow has created and that a search has not found.

        No other is created until a search finds it, or MLflow does not have it any more.
        """

    def ensure_run(self, mlflow_experiment_id: str, new: NewRun, started_at: datetime) -> EnsuredRun:
        """Return Paceline's run with `new`'s key, creating it if needed. `write` adds its parameters.

        Of several runs, which MLflow has if it created one after the client had stopped waiting, the unused ones are
        deleted.
        """
        with self._translated_errors():
            unknown: list[str] = []
            find = partial(self._find_run, mlflow_experiment_id, new, unknown)
            ensured, has_failed = find_or_create(find, partial(self._create_run, mlflow_experiment_id, new, started_at))
            if ensured.is_new:
                ensured = self._kept(mlflow_experiment_id, new, ensured, unknown)
        return ensured._replace(unknown_run_ids=unknown, is_unanswered=has_failed or ensured.is_unanswered)

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

    def _own_runs(self, mlflow_experiment_id: str, new: NewRun, *, with_deleted: bool = False) -> list[Run]:
        return [run for run in self._runs_of(mlflow_experiment_id, new, with_deleted=with_deleted) if is_own(run, new)]

    def _runs_of(self, mlflow_experiment_id: str, new: NewRun, *, with_deleted: bool) -> list[Run]:
        """Search by the key's tags that the run has; MLflow cannot search for runs without a tag."""
        wanted = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in new.key.items() if value is not None)
        return list(
            self._all_runs(mlflow_experiment_id, wanted, ViewType.ALL if with_deleted else ViewType.ACTIVE_ONLY)
        )

    def _all_runs(self, mlflow_experiment_id: str, wanted: str, view: int = ViewType.ACTIVE_ONLY) -> Iterator[Run]:
        token = None
        while True:
            page = retried(self._client.search_runs, [mlflow_experiment_id], wanted, view, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _delete_unused(self, runs: Sequence[Run], new: NewRun, kept_run_id: str, surplus: Collection[str] = ()) -> None:
        for run in runs:
            is_unused = run.info.run_id in surplus or is_untouched(run, new)
            if run.info.run_id != kept_run_id and is_unused:
                log.info("deleting run %s of MLflow, which was created besides %s", run.info.run_id, kept_run_id)
                retried(self._client.delete_run, run.info.run_id)

    def _find_run(self, mlflow_experiment_id: str, new: NewRun, unknown: list[str]) -> EnsuredRun | None:
        """Add the ids of runs that are to be ended to `unknown`."""
        return self._chosen(self._own_runs(mlflow_experiment_id, new, with_deleted=TRIAL_TAG in new.key), new, unknown)

    def _chosen(self, own: Sequence[Run], new: NewRun, unknown: list[str]) -> EnsuredRun | None:
        unknown[:] = [str(run.info.run_id) for run in own if is_to_be_ended(run, new)]
        found = fitting(own, new)
        if not found:
            return None
        kept = min(found, key=written_to_first)
        self._delete_unused(found, new, kept.info.run_id)
        missing = {name: value for name, value in new.params.items() if name not in kept.data.params}
        return EnsuredRun(str(kept.info.run_id), False, missing, new_parent(kept, new))

    def _create_run(self, mlflow_experiment_id: str, new: NewRun, started_at: datetime) -> EnsuredRun:
        self._check_search()
        began = milliseconds(started_at)
        made = self._client.create_run(mlflow_experiment_id, began, tags=new.created_tags, run_name=new.name)
        return EnsuredRun(self._id(made.info.run_id), True, new.params)

    def _check_search(self) -> None:
        """Raise ForeignAnswer while searches do not find the run that MLflow created last."""
        if self._not_found is not None and self._is_overlooked(self._not_found):
            raise _not_found(self._not_found.run_id)
        self._not_found = None

    def _is_overlooked(self, created: _CreatedRun) -> bool:
        """Whether a search does not find a run that MLflow still has. MLflow itself answers if it refuses a call."""
        wanted = f"attributes.run_id = '{created.run_id}'"
        try:
            found = self._client.search_runs([created.mlflow_experiment_id], wanted, ViewType.ALL)
            return not found and self._client.get_run(created.run_id) is not None
        except MlflowException as error:
            if not is_refusal(error):
                raise
            return False

    def _kept(self, mlflow_experiment_id: str, new: NewRun, created: EnsuredRun, unknown: list[str]) -> EnsuredRun:
        """Return the created run, or an earlier one that is used, which the search before has not found."""
        self._not_found = _CreatedRun(mlflow_experiment_id, created.run_id)
        found = retried(self._runs_with, created.run_id, mlflow_experiment_id, new)
        self._not_found = None
        earlier = [run for run in found if run.info.run_id != created.run_id and is_own(run, new)]
        used = self._chosen([run for run in earlier if not is_untouched(run, new)], new, unknown)
        if used is not None:
            retried(self._client.delete_run, created.run_id)
        return (used or created)._replace(is_unanswered=bool(earlier))

    def _runs_with(self, run_id: str, mlflow_experiment_id: str, new: NewRun) -> list[Run]:
        found = self._runs_of(mlflow_experiment_id, new, with_deleted=TRIAL_TAG in new.key)
        if all(run.info.run_id != run_id for run in found):
            raise _not_found(run_id)
        return found


def _not_found(run_id: str) -> ForeignAnswer:
    return ForeignAnswer(f"a search does not find the run {run_id}, which MLflow has created; {ADVICE}")
